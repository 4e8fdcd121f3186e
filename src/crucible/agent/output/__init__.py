"""A job's output: read, stored, parsed for metrics, and redacted."""
