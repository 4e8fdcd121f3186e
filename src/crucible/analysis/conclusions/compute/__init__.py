"""GPU, memory, run time and how the work is spread."""
