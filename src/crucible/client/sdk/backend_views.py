"""Places, machines and plans, as the server tells of them."""

from crucible.core.views.machines import (
    BackendPage,
    BackendView,
    MachinePage,
    MachineView,
    OfferView,
    OrphanPage,
    OrphanView,
)
from crucible.core.views.plans import (
    PlannedView,
    PlanView,
)

__all__ = [
    "BackendPage",
    "BackendView",
    "MachinePage",
    "MachineView",
    "OfferView",
    "OrphanPage",
    "OrphanView",
    "PlanView",
    "PlannedView",
]
