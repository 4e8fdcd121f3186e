"""WebSockets that follow jobs and relay sessions."""
