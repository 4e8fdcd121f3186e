"""The server itself, its models and its upkeep."""

from pydantic import Field

from crucible.core.views.base import PartialView, View, sometimes


class RestoredView(View):
    """A restored database that no administrator has confirmed yet. Times are seconds since 1970."""

    restored_at: float
    backup_at: float | None = None
    why: str = ""
    fix: str = ""


class ServerView(PartialView):
    """The server's state. `pid` and `home` are only for administrators."""

    version: str = ""
    api: int = 0
    deployment: str = ""
    pid: int | None = sometimes(None)
    url: str | None = None
    agents_url: str = ""
    home: str | None = sometimes(None)
    started_at: str = ""
    restored: RestoredView | None = None
    running: int = 0
    queued: int = 0
    billing: int = 0


class ModelView(View):
    """A model plugin. `schema` is None for one that accepts any config; `error` says why one is broken."""

    name: str
    title: str = ""
    version: str = ""
    description: str = ""
    framework: str = ""
    entry: str = ""
    distribution: str = ""
    distribution_version: str = ""
    python: str = ""
    min_gpu_memory_gb: float = 0
    methods: tuple[str, ...] = ()
    options: dict[str, dict[str, object]] | None = Field(default=None, alias="schema")
    error: dict[str, str | None] | None = None

    def as_json(self) -> dict[str, object]:
        return self.model_dump(mode="json", by_alias=True)


class ModelPage(View):
    items: tuple[ModelView, ...] = ()


class PrunedView(View):
    """An item that was or would be removed."""

    what: str = ""
    job: str | None = None
    count: int = 0
    bytes: int = 0
    why: str = ""


class UnprunedView(View):
    """An object that could not be removed from the store."""

    key: str = ""
    why: str = ""


class PruneView(View):
    """Counts of removed items, or, after a dry run, of those that would be."""

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
    """A backup. `store` is the location of the objects, which the backup does not contain."""

    path: str = ""
    bytes: int = 0
    sha256: str = ""
    store: str = ""
    note: str = ""


class ConfirmedView(View):
    """A confirmed restore: `effects` were held back, and are due now."""

    confirmed: bool = False
    restored_at: str | None = None
    effects: int = 0


class AliveView(View):
    """`nonce` distinguishes this run of the server from others."""

    ok: bool = True
    nonce: str = ""
    version: str = ""


class ReadyView(PartialView):
    """`deployment` is set once the server is ready, `why` if it was ready and no longer is."""

    ready: bool = True
    nonce: str = ""
    version: str = ""
    deployment: str | None = sometimes(None)
    why: str | None = sometimes(None)


class StoppingView(View):
    stopping: bool = True


class JsonSchemaView(PartialView):
    """A JSON schema, draft 2020-12."""

    title: str
    type: str
    description: str | None = sometimes(None)
    properties: dict[str, object]
    required: tuple[str, ...] = sometimes(())
    additional_properties: bool = Field(alias="additionalProperties")
    defs: dict[str, object] = Field(alias="$defs")


class BundleView(View):
    """An uploaded bundle; `created`: it is new."""

    sha256: str
    created: bool = True
