"""Payloads: script, directory, git address, notebook, function, code, shell command or model as files and a command."""

from crucible.client.payload.base import JOB_FILES, CodeSource, ModelOptions, Payload
from crucible.client.payload.load import load_code, make_payload
from crucible.client.payload.script import from_code, from_shell

__all__ = ["JOB_FILES", "CodeSource", "ModelOptions", "Payload", "from_code", "from_shell", "load_code", "make_payload"]
