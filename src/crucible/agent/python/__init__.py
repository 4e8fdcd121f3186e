"""Finds or builds the Python of a job."""
