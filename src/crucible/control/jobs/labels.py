"""Labels of a job: its name and tags, by which users find it. They can be changed at any time.

They have tables of their own, so that a change never conflicts with a transition of the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, delete, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, insert_row
from crucible.core.job.spec import JobSpec
from crucible.core.job.tags import Tag, check_count, parse_tags
from crucible.core.lifecycle import Job

MAX_SEARCH_TEXT = 1000
"""Characters of a command and its source that can be searched."""

_l, _t = t.listings.c, t.job_tags.c
_JOBS: BindParameter[Any] = bindparam("jobs", expanding=True)
_ADD = Statement(insert_row(t.listings, ["job", "kind", "name", "folded", "words"]))
_LABELS = Statement(
    select(_l.job, _l.name, _t.key, _t.value)
    .join(t.job_tags, _t.job == _l.job, isouter=True)
    .where(_l.job.in_(_JOBS))
    .order_by(_l.job, _t.key)
)
_RENAME = Statement(
    update(t.listings).where(_l.job == bindparam("its_job")).values(name=bindparam("name"), folded=bindparam("folded"))
)
_TAGS = Statement(select(t.job_tags).where(_t.job == bindparam("job")).order_by(_t.key))
_ADD_TAG = Statement(insert_row(t.job_tags, ["job", "key", "value"]))
_DROP_TAGS = Statement(
    delete(t.job_tags).where(_t.job == bindparam("its_job"), _t.key.in_(bindparam("keys", expanding=True)))
)


@dataclass(frozen=True)
class JobLabels:
    name: str | None = None
    tags: tuple[Tag, ...] = ()

    @classmethod
    def from_spec(cls, spec: JobSpec) -> JobLabels:
        """Return the labels that a job was submitted with. Raises BadInput for malformed tags."""
        return cls(spec.name, parse_tags(spec.tags))


def add_listing(conn: Connection, job: Job) -> None:
    """Add a new job to the tables that searches use."""
    spec = job.spec
    words = " ".join([*spec.command, spec.source.path or "", spec.source.url or ""])
    row = {
        "kind": spec.kind.value,
        "name": spec.name,
        "folded": fold_case(spec.name or ""),
        "words": fold_case(words)[:MAX_SEARCH_TEXT],
    }
    _ADD.run(conn, job=job.id, **row)
    _add_tags(conn, job.id, JobLabels.from_spec(spec).tags)


def fold_case(text: str) -> str:
    """Return the text for case-insensitive search, the same on every database."""
    return text.casefold().replace("\x00", "")


def labels_by_job(conn: Connection, jobs: Sequence[str]) -> dict[str, JobLabels]:
    """Return the labels of those of the jobs that have a listing."""
    labels: dict[str, JobLabels] = {}
    for row in _LABELS.all(conn, jobs=jobs):
        known = labels.get(row["job"]) or JobLabels(row["name"])
        tags = known.tags if row["key"] is None else (*known.tags, Tag(row["key"], row["value"]))
        labels[row["job"]] = JobLabels(known.name, tags)
    return labels


def rename(conn: Connection, job: str, name: str | None) -> None:
    _RENAME.run(conn, its_job=job, name=name, folded=fold_case(name or ""))


def tags_of(conn: Connection, job: str) -> tuple[Tag, ...]:
    """Return the tags of a job, ordered by key."""
    return tuple(Tag(row["key"], row["value"]) for row in _TAGS.all(conn, job=job))


def change_tags(conn: Connection, job: str, add: Iterable[Tag], remove: Iterable[Tag]) -> tuple[Tag, ...]:
    """Remove tags, then add tags, and return all tags of the job. Raises BadInput for too many.

    An added tag replaces one with the same key. `key` removes the tag whatever its value, `key=value` only if it has
    that value.
    """
    before = {tag.key: tag for tag in tags_of(conn, job)}
    after = _changed(before, add, remove)
    check_count(len(after))
    stale = [key for key, tag in before.items() if after.get(key) != tag]
    if stale:
        _DROP_TAGS.run(conn, its_job=job, keys=stale)
    _add_tags(conn, job, [tag for key, tag in after.items() if before.get(key) != tag])
    return tuple(after[key] for key in sorted(after))


def _changed(before: Mapping[str, Tag], add: Iterable[Tag], remove: Iterable[Tag]) -> dict[str, Tag]:
    removed = {tag.key for tag in remove if not tag.value or before.get(tag.key) == tag}
    kept = {key: tag for key, tag in before.items() if key not in removed}
    return {**kept, **{tag.key: tag for tag in add}}


def _add_tags(conn: Connection, job: str, tags: Sequence[Tag]) -> None:
    if tags:
        _ADD_TAG.run_each(conn, [{"job": job, "key": tag.key, "value": tag.value} for tag in tags])
