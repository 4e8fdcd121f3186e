"""The runner: one process per attempt. `runner.py` lists its steps; start reading there."""
