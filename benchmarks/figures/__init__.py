"""Speed of commands, server starts, submissions, searches and sockets, measured on one real deployment."""
