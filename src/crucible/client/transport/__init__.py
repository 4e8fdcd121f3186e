"""HTTP and WebSocket connections to a server: retries, errors, streams."""
