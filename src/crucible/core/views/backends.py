"""The settings of a backend, its checks, and its end."""

from crucible.core.views.base import View
from crucible.core.views.compute import MachineView, OfferView
from crucible.core.views.problems import ErrorView


class SettingView(View):
    """A setting of a backend: its meaning, its value in words (`***` for a secret) and where that comes from.

    `option` is its option of `crucible backends connect`; `variables` are the environment variables that set it.
    """

    name: str
    description: str = ""
    kind: str = "text"
    required: bool = False
    secret: bool = False
    many: bool = False
    option: str = ""
    variables: tuple[str, ...] = ()
    value: str | None = None
    origin: str = "default"

    @property
    def is_missing(self) -> bool:
        return self.required and self.value is None


class BackendSettingsView(View):
    """A backend with its settings.

    `state`: `connected`, `disconnecting` (until its machines are gone), `failed` (it should be connected; `problem`
    says why it is not) or `not connected`. `connected_by`: the source of the setting `backends` that names it, or
    `crucible backends connect`; null if it is not connected. `machines`: those that are not gone.
    """

    name: str
    state: str = ""
    connected_by: str | None = None
    updated_at: str | None = None
    updated_by: str | None = None
    about: str = ""
    install: str = ""
    operators_only: bool = False
    problem: ErrorView | None = None
    settings: tuple[SettingView, ...] = ()
    machines: tuple[MachineView, ...] = ()


class CheckFindingView(View):
    """A result of a check; `fix` says what to do if it is not `ok`, or is a `warning`."""

    what: str = ""
    ok: bool = True
    why: str = ""
    fix: str = ""
    warning: bool = False


class SettingChangeView(View):
    """A stored setting that a request changes; null for one that is not set."""

    name: str
    before: str | None = None
    after: str | None = None


class BackendCheckView(View):
    """What a check found; `offers` are the cheapest. `connected`: the settings were stored and are in use."""

    name: str
    ok: bool = False
    connected: bool = False
    findings: tuple[CheckFindingView, ...] = ()
    offers: tuple[OfferView, ...] = ()
    changes: tuple[SettingChangeView, ...] = ()
    operators_only: bool = False
    projects: tuple[str, ...] = ()


class BackendDisconnectView(View):
    """`state`: `disconnecting` while machines are left, else `not connected`. `findings`: what was cleaned up."""

    name: str
    state: str = ""
    machines: tuple[MachineView, ...] = ()
    findings: tuple[CheckFindingView, ...] = ()
