"""Formats that travel between machines. Python 3.9, standard library only."""
