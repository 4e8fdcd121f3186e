"""HTTP and WebSocket API for people and programs, and the listener that agents speak to."""
