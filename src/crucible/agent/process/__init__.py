"""Start, limit, measure and end the user's process."""
