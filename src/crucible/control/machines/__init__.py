"""Make machines, watch them, count what they cost, and see them gone."""
