"""Find or start the server to talk to, and remember logins."""
