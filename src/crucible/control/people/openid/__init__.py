"""Sign in with an OpenID provider. Imported only if one is configured."""

from crucible.control.people.openid.login import OpenIdLogin
from crucible.control.people.openid.transport import BoundedTransport

__all__ = ["BoundedTransport", "OpenIdLogin"]
