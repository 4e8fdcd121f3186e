"""The user's process and everything that comes of it."""
