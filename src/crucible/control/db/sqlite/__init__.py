"""The database in one local file: one writer thread, many readers."""
