"""Run the control plane and the agents in virtual time, under seeded faults. `run.run` runs one seed."""
