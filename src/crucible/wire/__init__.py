"""Formats that are exchanged between machines. Python 3.9, standard library only."""
