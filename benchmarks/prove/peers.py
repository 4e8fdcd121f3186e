"""Failures that other projects published: the rule that prevents each here, and its tests.

Bugs planted in the simulation (tests/simulation/planted.py) name the failure that they reproduce.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PLANTED = Path("tests/simulation/planted.py")
Planted = Mapping[str, tuple[str, ...]]
"""Names of planted bugs, by the failures they reproduce."""


@dataclass(frozen=True)
class Peer:
    seen: str
    failure: str
    rule: str
    tests: tuple[str, ...]


PEERS = (
    Peer(
        "dstack#707, #3453; skypilot#4431",
        'crash between "VM created" and "id saved": leak or double',
        "the intent, with its token and tags, is stored before the call; the janitor finds leftovers",
        ("tests/faults/test_rehearsal_crashes.py::test_every_point_on_a_cloud",),
    ),
    Peer(
        "skypilot#4431",
        "a new VM that is not in the list yet is considered absent",
        "a machine is considered absent after a settle window and two lists",
        ("tests/control/reconcile/test_effects.py::test_a_machine_that_the_list_does_not_show_yet_is_not_made_twice",),
    ),
    Peer(
        "dstack#1551, #3031, #3324",
        "marked terminated while alive; or deleting a deleted VM raises",
        "gone only when the provider says so; already gone is success",
        ("tests/control/reconcile/test_effects.py::test_already_gone_is_success",),
    ),
    Peer(
        "skypilot#4410",
        "cancel during recovery launches after clean-up",
        "a cancellation increments the generation; older placements have no effect",
        ("tests/core/lifecycle/test_cancel.py::test_after_a_cancel_nothing_is_placed",),
    ),
    Peer(
        "skypilot#2990, #4392",
        "terminate error swallowed, failover continues",
        "termination is retried for ever, with growing waits and an alert",
        (
            "tests/control/reconcile/test_effects.py::test_a_termination_is_tried_for_ever",
            "tests/control/reconcile/test_effects.py::test_a_machine_that_does_not_end_is_told_loudly",
        ),
    ),
    Peer(
        "skypilot#10155, #10157, #10123",
        "a lost probe kills and relaunches a healthy job",
        "promise 4",
        ("tests/control/test_partition.py::test_a_healthy_job_is_neither_killed_nor_restarted",),
    ),
    Peer(
        "skypilot#5031, #7707",
        "a job's controller dies, healthy work is torn down",
        "any server continues from the row",
        ("tests/faults/test_postgres_restarts.py::test_restarts_and_kills_lose_and_double_nothing",),
    ),
    Peer(
        "skypilot#10682",
        'status read from "the latest job on the machine": false success',
        "every message carries the attempt's ID and secret",
        ("tests/control/agents/test_agents.py::test_a_batch_of_another_attempt_is_refused",),
    ),
    Peer(
        "dstack#2068, #3449",
        "cancel at the instant of provisioning: stuck",
        "every fact is tested in every reachable state",
        (
            "tests/core/lifecycle/test_explore.py::test_every_allowed_transition_is_reached_and_no_other",
            "tests/faults/test_cancel.py::test_provisioning",
        ),
    ),
    Peer(
        "dstack#2637",
        "a dead VM's address is reused: the new VM is taken for the old one",
        "an agent proves its instance ID and secret; addresses are not used",
        ("tests/control/agents/test_agents.py::test_of_two_hosts_the_second_is_refused",),
    ),
    Peer(
        "skypilot#10021",
        "recovery never avoids the region that took its machine back",
        "such a zone is considered last for half an hour; gradual decay and real traces are not implemented yet",
        ("tests/control/scheduling/test_elastic.py::test_a_zone_that_took_a_machine_back_is_tried_last",),
    ),
    Peer(
        "dstack#2783, ray#44561",
        "logs lost, or logs freeze the server",
        "spool on disk with offsets, bounded memory",
        (
            "tests/faults/test_line_to_agents.py::test_every_line_arrives_once_and_in_order",
            "tests/control/telemetry/test_tails.py::test_only_the_newest_bytes_are_kept",
        ),
    ),
    Peer(
        "ray CVE-2023-48022, prefect CVE-2026-7723, ray CVE-2026-27482",
        "job API or WebSocket without auth; CSRF",
        "authentication is on by default, with the same check for HTTP and WebSocket",
        (
            "tests/server/security/test_auth.py::test_every_route_and_socket_needs_the_token",
            "tests/server/security/test_auth.py::test_pages_of_other_sites_are_refused",
        ),
    ),
    Peer(
        "mlflow CVE-2023-1177 … CVE-2026-2033",
        "path traversal in artifacts",
        "keys are made by the server; one `safe_join`; safe unpacking",
        (
            "tests/wire/files/test_paths.py::test_whatever_the_name_the_path_stays_inside",
            "tests/wire/files/test_archive.py::test_no_hostile_archive_escapes",
        ),
    ),
    Peer(
        "clearml CVE-2024-24590",
        "pickle",
        "nothing unpickles or imports a module that could",
        ("tests/test_unpickling.py::test_nothing_that_unpickles_is_imported",),
    ),
)


def planted(root: Path) -> Planted:
    """Return the planted bugs, read from the source, because importing the simulator takes long."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(ast.parse((root / PLANTED).read_text())):
        match node:
            case ast.Call(func=ast.Name(id="Planted"), args=[ast.Constant(str(name)), ast.Constant(str(seen)), *_]):
                found[seen] = (*found.get(seen, ()), name)
    return found
