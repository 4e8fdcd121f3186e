"""Conclusions: what the facts mean for what the program needs."""
