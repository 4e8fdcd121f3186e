"""The client of one server. `Api` has a method or a resource for each of its routes."""

from crucible.client.api.client import Api

__all__ = ["Api"]
