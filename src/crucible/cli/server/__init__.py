"""Commands about the server and this installation."""
