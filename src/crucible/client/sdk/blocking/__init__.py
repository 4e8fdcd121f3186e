"""The blocking client. `client/sdk/platform.py` wraps it for asyncio."""

from crucible.client.sdk.blocking.job import SyncJob
from crucible.client.sdk.blocking.platform import SyncMLPlatform

__all__ = ["SyncJob", "SyncMLPlatform"]
