"""Documents exchanged between the control plane and agents."""
