"""The API of a server: `Api` has a method, or a resource with methods, for each route."""

from crucible.client.api.client import Api

__all__ = ["Api"]
