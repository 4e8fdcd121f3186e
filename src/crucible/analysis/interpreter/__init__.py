"""Follows a program the way Python would, without running it."""
