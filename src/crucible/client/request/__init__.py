"""What the user asks for, from flags, a job file or keywords to one JobSpec."""
