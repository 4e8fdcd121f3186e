"""What routes may ask of the control plane, by resource. Every operation takes the caller's identity first."""
