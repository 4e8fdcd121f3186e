"""What a job writes: read, kept on disk, parsed, and cleared of secrets."""
