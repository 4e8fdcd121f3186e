"""HTTP and WebSockets with the standard library."""
