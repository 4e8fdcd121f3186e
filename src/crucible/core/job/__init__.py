"""What a job is asked to be: its spec, job file, filter, tags and states."""
