"""Secrets of projects: kept encrypted, handed to the jobs that name them, shown to nobody."""

from crucible.control.secrets.keyring import FILE as KEYS_FILE
from crucible.control.secrets.vault import Vault

__all__ = ["KEYS_FILE", "Vault"]
