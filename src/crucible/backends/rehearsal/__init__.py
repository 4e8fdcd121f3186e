"""A simulated cloud to rehearse with: machines are local processes, money is play money.

`cloud/` is the provider, a program of its own; the rest is the backend that rents from it.
"""

from crucible.backends.rehearsal.backend import RehearsalBackend
from crucible.backends.rehearsal.connection import Address
from crucible.backends.rehearsal.instances import Metered
from crucible.backends.rehearsal.starting import start_cloud, stop_cloud

__all__ = ["Address", "Metered", "RehearsalBackend", "start_cloud", "stop_cloud"]
