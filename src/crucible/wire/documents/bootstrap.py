"""The bootstrap: the JSON document with which a host starts, made by the control plane and the backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

IDLE_EXIT_SECONDS = 60.0
AGENTS_ADDRESS_FILE = "agents.address"
"""The file with the address for agents on the server's own computer; those of version 0.1.0 read `agents.url`."""
AGENTS_SOCKET_FILE = "agents.socket"
"""The file with the `unix:` address of the server's own socket, at which tunnels end."""


class BadBootstrap(ValueError):
    """The file is not a bootstrap of the control plane."""


@dataclass(frozen=True)
class Bootstrap:
    """The control plane sets `machine`, `nonce` and the channel; the backend adds the rest for its machines.

    `work` is the machine's folder, `envs` the folder of built environments, which attempts share.
    `shared`: the machine serves other attempts later, so caching pays. `interruption_url`: the provider's metadata
    machine, or `urls` are signed URLs of the mailbox. `elsewhere`: the machine is not the server's computer, so a
    Python that was found there at submission need not be here.
    """

    machine: str
    work: Path = Path()
    envs: Path = Path()
    nonce: str = field(default="", repr=False)
    native_id: str = ""
    agents_url: str | None = None
    agents_url_file: str | None = None
    uv: str | None = None
    idle_exit_seconds: float = IDLE_EXIT_SECONDS
    shared: bool = True
    elsewhere: bool = False
    interruption_url: str | None = None
    store: Mapping[str, object] | None = field(default=None, repr=False)

    @property
    def cache(self) -> Path:
        return self.envs.parent / "cache"

    @property
    def attempts(self) -> Path:
        return self.work / "attempts"

    @classmethod
    def from_dict(cls, doc: dict[str, object]) -> Bootstrap:
        try:
            return cls(
                machine=str(doc["machine"]),
                work=Path(str(doc["work"])),
                envs=Path(str(doc["envs"])),
                nonce=str(doc.get("nonce") or ""),
                native_id=str(doc.get("native_id") or ""),
                agents_url=_text(doc.get("agents_url")),
                agents_url_file=_text(doc.get("agents_url_file")),
                uv=_text(doc.get("uv")),
                idle_exit_seconds=float(str(doc.get("idle_exit_seconds", IDLE_EXIT_SECONDS))),
                shared=bool(doc.get("shared", True)),
                elsewhere=bool(doc.get("elsewhere", False)),
                interruption_url=_text(doc.get("interruption_url")),
                store=_mapping(doc.get("store")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadBootstrap(f"not a bootstrap file: {error}") from error

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "work": str(self.work), "envs": str(self.envs)}

    def for_runner(self) -> Bootstrap:
        """Return the same without the nonce, which only the host may use."""
        return replace(self, nonce="")


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _mapping(value: object) -> Mapping[str, object] | None:
    return {str(name): item for name, item in value.items()} if isinstance(value, dict) else None
