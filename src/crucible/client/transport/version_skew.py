"""Version skew: what a server's answers say about its version, compared with our own."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from crucible import __version__
from crucible.core.errors import Conflict
from crucible.core.versions import API, API_HEADER, VERSION_HEADER, versions_differ

log = logging.getLogger("crucible")


class IncompatibleServer(Conflict):
    """The server's API is another one: its answers could be misunderstood."""

    code = "incompatible_server"


class VersionCheck:
    """Looks at every answer of one server; tells once, on standard error unless logging is set up."""

    def __init__(self, *, embedded: bool, version: str = __version__) -> None:
        self._embedded = embedded
        self._version = version
        self._told = False

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises IncompatibleServer. A server that does not say its version is taken as it is."""
        theirs, api = headers.get(VERSION_HEADER, ""), headers.get(API_HEADER, "")
        if api.isdigit() and int(api) != API:
            raise IncompatibleServer(
                f"The server is version {theirs or 'unknown'}, this command {self._version}.",
                why=f"They do not understand each other: its API is number {api}, ours {API}.",
                fix=self._fix(theirs),
            )
        if versions_differ(theirs, self._version) and not self._told:
            self._told = True
            log.warning(
                "The server is version %s, this command %s: they may differ in what they know. %s",
                theirs,
                self._version,
                self._fix(theirs),
            )

    def _fix(self, theirs: str) -> str:
        if self._embedded:
            return "`crucible down`, then any command, starts the server anew in this version; jobs go on."
        return f"Bring both to one version: pip install crucible-ml=={theirs}, or upgrade the server."
