"""The backend `ssh`: Linux hosts that the server's user can log in to with a key."""
