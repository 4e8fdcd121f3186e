"""The server itself, its models and its upkeep, as it tells of them."""

from pydantic import Field

from crucible.client.views import View


class ServerView(View):
    version: str = ""
    deployment: str = ""
    pid: int | None = None
    url: str | None = None
    home: str | None = None
    running: int = 0
    queued: int = 0
    billing: int = 0


class ModelView(View):
    """A model plugin. `schema` is None for one that takes any config; `error` says why one is broken."""

    name: str
    title: str = ""
    version: str = ""
    description: str = ""
    framework: str = ""
    distribution: str = ""
    min_gpu_memory_gb: float = 0
    methods: tuple[str, ...] = ()
    options: dict[str, dict[str, object]] | None = Field(default=None, alias="schema")
    error: dict[str, str | None] | None = None

    def as_json(self) -> dict[str, object]:
        return self.model_dump(mode="json", by_alias=True)


class ModelPage(View):
    items: tuple[ModelView, ...] = ()


class PrunedView(View):
    """One thing that was or would be removed."""

    what: str = ""
    job: str | None = None
    bytes: int = 0
    why: str = ""


class UnprunedView(View):
    """An object that could not be removed from the store."""

    key: str = ""
    why: str = ""


class PruneView(View):
    """Counts of what was removed, or, after a dry run, of what would be."""

    jobs: int = 0
    checkpoints: int = 0
    artifacts: int = 0
    logs: int = 0
    bundles: int = 0
    bytes: int = 0
    dry_run: bool = False
    items: tuple[PrunedView, ...] = ()
    failed: tuple[UnprunedView, ...] = ()

    @property
    def is_any(self) -> bool:
        return bool(self.items or self.jobs or self.checkpoints or self.artifacts or self.logs or self.bundles)


class BackupView(View):
    path: str = ""
    bytes: int = 0
    sha256: str = ""


class ConfirmedView(View):
    """What the server says after a restore was confirmed."""
