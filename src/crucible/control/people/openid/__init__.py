"""Signing in with an OpenID provider: the protocol, and who comes in by it. Loaded only where it is set up."""

from crucible.control.people.openid.login import OpenIdLogin
from crucible.control.people.openid.transport import BoundedTransport

__all__ = ["BoundedTransport", "OpenIdLogin"]
