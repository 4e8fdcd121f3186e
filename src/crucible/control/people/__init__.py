"""Users, projects, tokens, sign-in with an OpenID provider, and the audit log."""
