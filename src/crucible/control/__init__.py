"""The control plane: everything around the pure core that reads, stores, calls and waits."""
