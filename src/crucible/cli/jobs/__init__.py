"""Commands about jobs: run, follow, compare, cancel, resume."""
