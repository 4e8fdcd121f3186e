"""One runner per attempt, from staging to the last acknowledgement."""
