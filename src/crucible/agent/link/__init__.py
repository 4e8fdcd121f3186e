"""The connection to the control plane: channels, the spool of messages, and the uploader."""
