"""Recognises files that hold secrets, by their names and by how they begin."""

from __future__ import annotations

import os
import stat
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

_FOLDERS = frozenset({".aws", ".azure", ".docker", ".gcloud", ".gnupg", ".kaggle", ".kube", ".oci", ".ssh"})
_FILES = (
    ".env*",
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".boto",
    ".s3cfg",
    ".vault-token",
    "id_rsa",
    "id_dsa",
    "id_ecdsa*",
    "id_ed25519*",
    "*.key",
    "*.ppk",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.kdbx",
    "*.keystore",
    "kaggle.json",
    "kubeconfig",
    "rootkey.csv",
    "*accesskeys.csv",
    "application_default_credentials.json",
    "client_secret*.json",
    "*service*account*.json",
    "*credentials*.json",
    "*.publishsettings",
    "azureprofile.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "secrets.json",
)
_READ = frozenset({"", ".pem", ".json", ".txt", ".crt", ".cfg", ".ini"})
"""Endings of files whose content is looked at."""
_MOST_READ = 32 * 1024
_MARKS = (b"PRIVATE KEY-----", b'"private_key"', b'"refresh_token"', b'"client_secret"', b"aws_secret_access_key")


def is_secret_name(name: str) -> bool:
    """Return whether the name of a file, or of a folder above it, is one that holds secrets."""
    path = PurePosixPath(name.lower())
    if path.name.endswith(".pub"):
        return False
    return bool(_FOLDERS & set(path.parts)) or any(fnmatchcase(path.name, pattern) for pattern in _FILES)


def looks_secret(root: Path, name: str) -> bool:
    """Return whether the file `name` below `root` seems to hold a secret. Links are not followed."""
    return is_secret_name(name) or (PurePosixPath(name).suffix.lower() in _READ and _has_key(root / name))


def _has_key(path: Path) -> bool:
    try:
        info = path.lstat()
        if not stat.S_ISREG(info.st_mode) or not 0 < info.st_size <= _MOST_READ:
            return False
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            content = file.read(_MOST_READ)
    except OSError:
        return False
    return any(mark in content for mark in _MARKS)
