"""What routes may ask of the control plane, by resource. The caller comes first, unless it is for everyone."""
