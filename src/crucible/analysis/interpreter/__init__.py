"""Follow a program the way Python would, with values that may be unknown."""
