"""Values that exist in the populated app, for parameters that a generator would hardly guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.authorisation.populated_app import CODE, PopulatedApp
from tests.control.harness import job_spec, sha

from crucible.core.compute.tiers import TIERS
from crucible.core.people.identity import OWNER
from crucible.core.secret import Secret

Words = tuple[Any, ...]
ODD = ("", ".", "..", "\x00", "a\x00b", "-1", "0", "null", "1e999", "%00", "../../etc/passwd", "'; --", "x" * 5000)
"""Values for any parameter."""
CURSORS = ("MTIz", "e30", "====", "bnVsbA", "MTc4NDExMi4wfGpvYi0x", "LTE6LTE6LTE6LTE")


@dataclass(frozen=True)
class LikelyValues:
    """Values by the name of a parameter or field."""

    by_name: Mapping[str, Words] = field(default_factory=dict)

    def words(self, name: str) -> Words:
        return self.by_name.get(name, ())


async def settled(populated_app: PopulatedApp) -> LikelyValues:
    """Add a secret, a note, an ended job and a second one to the app; return the values that exist in it."""
    control = populated_app.control
    await control.secrets.set(OWNER, "alpha", "API_KEY", Secret("a value to keep"))
    note = await control.labels.add_note(OWNER, populated_app.job, text="a first note")
    other = (await control.jobs.submit(OWNER, job_spec(project="beta"), "a-key")).view.id
    ended = (await control.jobs.submit(OWNER, job_spec(project="alpha", name="ended", tags=("a=b",)), None)).view.id
    await control.jobs.cancel(OWNER, ended)
    tokens = await control.tokens.list_tokens(OWNER, all=True)
    jobs = (populated_app.job, populated_app.job[-6:], other, ended, "last", "ended")
    checkpoints = (await control.checkpoints.list_checkpoints(OWNER, populated_app.job)).items
    machine = (await populated_app.harness.machine()).id
    page = await control.jobs.list_jobs(OWNER, _everything(), limit=1, cursor=None)
    projects, people = ("alpha", "beta", "default"), ("admin", "member", "viewer", "owner")
    found: dict[str, Words] = {
        **dict.fromkeys(("id", "job_id", "task_id", "job", "ids", "rerun_of"), jobs),
        **dict.fromkeys(("checkpoint", "resume_from"), (checkpoints[0].id, "step_1.pt", "latest", "best")),
        **dict.fromkeys(("project", "tenant_id"), projects),
        **dict.fromkeys(("name", "user"), (*people, "API_KEY", "ended")),
        **dict.fromkeys(("backend", "executor"), ("local", "rehearsal", "nowhere")),
        "machine": (machine, machine[-6:]),
        "note": (note.id,),
        "token": (tokens.items[0].id, str((await populated_app.identity("admin")).token)),
        "sha256": (sha(CODE), "0" * 64),
        "bundle": (sha(CODE), "0" * 64),
        "path": ("model.pt", "model.pt/x"),
        "cursor": (str(page.next), *CURSORS),
        "series": ("loss",),
        "q": ("line", "(", "a{1000}{1000}", "(?i)LINE", "\\pN+"),
        "regex": (True,),
        "tier": tuple(TIERS),
        "kind": ("train", "inference", "service"),
        "status": ("running", "queued,cancelled"),
        "tag": ("a=b", "a"),
        "created_after": ("2026-01-01", "1e300", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"),
        "created_before": ("2026-01-01T00:00:00Z", "-1e300", "nan", "99999999999999999999"),
        "since": (0, 1e300, "inf", "nan"),
    }
    return LikelyValues(found)


def _everything() -> Any:
    from crucible.core.job.job_filter import JobFilter

    return JobFilter()
