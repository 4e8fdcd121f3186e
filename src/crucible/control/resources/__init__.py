"""The resources of the control plane, which routes call with the identity of the caller as the first argument."""
