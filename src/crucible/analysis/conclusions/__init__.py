"""Draws conclusions from the collected facts: what the program needs."""
