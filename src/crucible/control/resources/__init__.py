"""What routes may ask of the control plane, by resource, with the identity of the caller first."""
