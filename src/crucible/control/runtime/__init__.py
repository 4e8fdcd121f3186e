"""Build one process of the control plane, and keep it running."""
