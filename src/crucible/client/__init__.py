"""Talking to a Crucible server from Python."""
