"""Commands about jobs: run, watch, compare, end, resume."""
