"""The client for plain Python: every method waits for its answer.

All that the client does is here; `client/sdk/platform.py` offers the same to asynchronous programs.
"""

from crucible.client.sdk.blocking.job import SyncJob
from crucible.client.sdk.blocking.platform import SyncMLPlatform

__all__ = ["SyncJob", "SyncMLPlatform"]
