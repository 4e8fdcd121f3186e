"""The backend `rehearsal`: a simulated cloud, whose machines are local processes and whose prices are invented.

`cloud/` is the provider, a separate program; the other modules are the backend that calls it.
"""

from crucible.backends.rehearsal.backend import RehearsalBackend, make_backend
from crucible.backends.rehearsal.connection import Address
from crucible.backends.rehearsal.start_cloud import start_cloud, stop_cloud, stop_idle_cloud

__all__ = ["Address", "RehearsalBackend", "make_backend", "start_cloud", "stop_cloud", "stop_idle_cloud"]
