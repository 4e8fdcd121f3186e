"""The definition of a job: its spec, job file, filter, tags and states."""
