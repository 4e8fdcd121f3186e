"""Talking to the control plane."""
