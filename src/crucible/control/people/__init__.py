"""People: users, projects, tokens, and the record of what they did."""
