"""A simulated cloud to rehearse with: machines are local processes, money is play money.

`cloud/` is the provider, a program of its own; the rest is the backend that rents from it.
"""

from crucible.backends.rehearsal.backend import RehearsalBackend, make_backend
from crucible.backends.rehearsal.connection import Address
from crucible.backends.rehearsal.start_cloud import start_cloud, stop_cloud, stop_idle_cloud

__all__ = ["Address", "RehearsalBackend", "make_backend", "start_cloud", "stop_cloud", "stop_idle_cloud"]
