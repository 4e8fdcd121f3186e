"""HTTP and WebSockets to one server: retries, errors, streams."""
