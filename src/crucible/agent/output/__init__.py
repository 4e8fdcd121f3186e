"""Read, store and redact a job's output, and parse it for metrics."""
