"""Secrets of projects: stored encrypted, given to the jobs that name them, never shown."""

from crucible.control.secrets.keyring import FILE as KEYS_FILE
from crucible.control.secrets.vault import Vault

__all__ = ["KEYS_FILE", "Vault"]
