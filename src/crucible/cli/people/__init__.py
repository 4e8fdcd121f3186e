"""Commands about users, projects, tokens, secrets and notifications."""
