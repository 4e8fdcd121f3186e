"""The control plane's side of the conversation with hosts and runners."""
