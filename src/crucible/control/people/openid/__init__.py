"""Signing in with an OpenID provider: the protocol, and who comes in by it. Loaded only where it is set up."""

from crucible.control.people.openid.entrance import Entrance
from crucible.control.people.openid.web import HttpWeb, Web

__all__ = ["Entrance", "HttpWeb", "Web"]
