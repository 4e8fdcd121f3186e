"""What it costs to ask, start, submit, search and follow: one real deployment, measured from outside."""
