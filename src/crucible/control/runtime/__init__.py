"""How one process of the control plane is put together and kept running."""
