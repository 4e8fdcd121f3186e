"""The control plane and the agents in virtual time, under faults that a seed decides. `run.run` runs one seed."""
