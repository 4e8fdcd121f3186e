"""Tokens that ended long ago are removed; what was done with them is still known."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine, text, update
from tests.authorisation.populated_app import PopulatedApp
from tests.control.harness import ControlHarness, other_worker

from crucible.control.db import schema as t
from crucible.control.people import tokens
from crucible.control.upkeep import restore_hold
from crucible.control.upkeep import retention as retention_module
from crucible.core.errors import NotFound
from crucible.core.job.retention import DAY
from crucible.core.people.identity import OWNER, Permission
from crucible.core.requests import NewToken

OLD = tokens.RETENTION_SECONDS + 1


async def names(harness: ControlHarness) -> set[str]:
    return {row["name"] for row in await harness.rows(t.tokens)}


async def add(
    harness: ControlHarness,
    name: str,
    *,
    via: str = "token",
    expires: float | None = None,
    revoked: float | None = None,
) -> None:
    """`expires` and `revoked` are seconds before now."""
    now, made = harness.clock.now(), harness.clock.now() - 1000 * DAY
    seconds = None if expires is None else now - expires - made
    id = f"tok-{name}"

    def insert(conn: Any) -> None:
        tokens.issue(conn, OWNER, id, made, name=name, via=via, scopes=frozenset(), seconds=seconds)
        ended = None if revoked is None else now - revoked
        conn.execute(update(t.tokens).where(t.tokens.c.id == id).values(revoked_at=ended))

    await harness.ports.db.write(insert)


@pytest.fixture
async def retention_holder(populated_app: PopulatedApp) -> ControlHarness:
    """A process that has the duty of retention, in a populated app of people."""
    await populated_app.harness.duties.renew(populated_app.harness.ports.db, populated_app.harness.clock)
    return populated_app.harness


async def test_those_that_ended_long_ago_go_and_the_others_stay(retention_holder: ControlHarness) -> None:
    harness, before = retention_holder, await names(retention_holder)
    for name in ("token", "session", "share", "login"):
        await add(harness, f"expired {name}", via=name, expires=OLD)
        await add(harness, f"revoked {name}", via=name, revoked=OLD, expires=-DAY)
    await add(harness, "both", revoked=OLD, expires=OLD)
    kept = {"good", "endless", "just expired", "just revoked"}
    await add(harness, "good", expires=-DAY)
    await add(harness, "endless")
    await add(harness, "just expired", expires=OLD - DAY)
    await add(harness, "just revoked", revoked=OLD - DAY)
    await harness.services.retention.round()
    assert await names(harness) == before | kept


async def test_what_was_done_with_them_stays(retention_holder: ControlHarness, populated_app: PopulatedApp) -> None:
    scopes = frozenset({Permission.READ})
    made = await populated_app.control.tokens.create(
        OWNER, NewToken(name="laptop", scopes=scopes, days=60 / DAY, user="member")
    )
    before = await retention_holder.rows(t.audit)
    assert any(row["target"] == made.id for row in before)
    retention_holder.clock.move(60 + OLD)
    await retention_holder.duties.renew(retention_holder.ports.db, retention_holder.clock)
    await retention_holder.services.retention.round()
    assert "laptop" not in await names(retention_holder)
    assert await retention_holder.rows(t.audit) == before
    with pytest.raises(NotFound):
        await populated_app.control.tokens.revoke(OWNER, made.id)


async def test_many_go_in_parts(retention_holder: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "TOKENS_AT_ONCE", 3)
    before, parts = await names(retention_holder), []
    for number in range(10):
        await add(retention_holder, f"old {number}", **{"revoked" if number % 2 else "expires": OLD + number})

    def forget(conn: Any, ids: Any, until: float) -> int:
        parts.append(tokens_forget(conn, ids, until))
        return parts[-1]

    tokens_forget = tokens.delete_ended
    monkeypatch.setattr(tokens, "delete_ended", forget)
    await retention_holder.services.retention.round()
    assert await names(retention_holder) == before
    assert (sum(parts), max(parts) <= 6, len(parts)) == (10, True, 2)


async def test_one_who_has_lost_the_duty_removes_nothing(retention_holder: ControlHarness) -> None:
    await add(retention_holder, "old", revoked=OLD)
    other = await other_worker(retention_holder, "w2")
    retention_holder.clock.move(1000)
    await other.duties.renew(other.ports.db, other.clock)
    await retention_holder.services.retention.round()
    assert "old" in await names(retention_holder), "he does not know yet that another has it"
    await other.services.retention.round()
    assert "old" not in await names(retention_holder)


async def test_after_a_restore_nothing_is_removed_until_that_is_confirmed(retention_holder: ControlHarness) -> None:
    await add(retention_holder, "old", revoked=OLD)
    await retention_holder.ports.db.write(
        lambda conn: restore_hold.mark_restored(conn, retention_holder.clock.now(), 0.0)
    )
    await retention_holder.services.retention.round()
    assert "old" in await names(retention_holder)


def test_they_are_found_by_when_they_ended() -> None:
    engine = create_engine("sqlite://")
    t.metadata.create_all(engine)
    with engine.connect() as conn:
        for end in ("revoked_at", "expires_at"):
            query = f"SELECT id FROM tokens WHERE {end} < 1.0 ORDER BY {end} LIMIT 3"
            steps = [row[3] for row in conn.execute(text(f"EXPLAIN QUERY PLAN {query}"))]
            assert steps == [f"SEARCH tokens USING INDEX ix_tokens_{end} ({end}<?)"]
