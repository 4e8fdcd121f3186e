"""The runner: one process per attempt. `runner.py` tells its life from top to bottom."""
