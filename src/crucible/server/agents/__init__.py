"""The listener that agents talk to."""
