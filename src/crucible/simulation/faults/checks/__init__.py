"""Checks that compare what the control plane says with what really happened."""
