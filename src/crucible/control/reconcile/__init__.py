"""Decide what happens next, commit it, then perform its effects."""
