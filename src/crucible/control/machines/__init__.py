"""Build machines, poll them, count their cost, and make sure that they end."""
