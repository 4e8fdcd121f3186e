"""Integrations: messages to people and their tools, and the guard on the addresses that users name for them."""
