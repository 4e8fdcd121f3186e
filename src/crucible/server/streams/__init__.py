"""WebSockets: follow jobs, and relay sessions."""
