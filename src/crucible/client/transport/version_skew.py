"""Compares the version of a server with ours."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from crucible import __version__
from crucible.core.errors import Conflict
from crucible.core.versions import API, API_HEADER, VERSION_HEADER, versions_differ

log = logging.getLogger("crucible")


class IncompatibleServer(Conflict):
    """The server's API version differs from ours, so its responses could be misread."""

    code = "incompatible_server"


class VersionCheck:
    """Checks every response of one server; warns once, on standard error unless logging is configured."""

    def __init__(self, *, embedded: bool, version: str = __version__) -> None:
        self._embedded = embedded
        self._version = version
        self._warned = False

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise IncompatibleServer for another API version. A server that sends no version passes."""
        theirs, api = headers.get(VERSION_HEADER, ""), headers.get(API_HEADER, "")
        if api.isdigit() and int(api) != API:
            raise IncompatibleServer(
                f"The server is version {theirs or 'unknown'}, this command {self._version}.",
                why=f"They are not compatible: its API version is {api}, ours is {API}.",
                fix=self._fix(theirs),
            )
        if versions_differ(theirs, self._version) and not self._warned:
            self._warned = True
            log.warning(
                "The server is version %s, this command %s: features may be missing. %s",
                theirs,
                self._version,
                self._fix(theirs),
            )

    def _fix(self, theirs: str) -> str:
        if self._embedded:
            return "`crucible down`, then any command, restarts the server in this version; jobs go on."
        return f"Use the same version on both: pip install crucible-ml=={theirs}, or upgrade the server."
