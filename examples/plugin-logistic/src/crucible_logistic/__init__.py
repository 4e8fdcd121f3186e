"""Logistic regression in plain Python, as a Crucible model plugin."""
