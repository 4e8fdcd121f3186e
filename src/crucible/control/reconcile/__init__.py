"""Decide what happens next, commit the decision, then perform its effects."""
