"""Find or build the Python of a job."""
