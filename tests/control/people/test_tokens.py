"""Tokens that ended long ago are removed; what was done with them is still known."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine, text, update
from tests.authorisation.town import Town
from tests.control.world import Rig, other_worker

from crucible.control.db import schema as t
from crucible.control.people import tokens
from crucible.control.upkeep import restore_hold
from crucible.control.upkeep import retention as retention_module
from crucible.core.errors import NotFound
from crucible.core.job.retention import DAY
from crucible.core.people.identity import OWNER, Permission
from crucible.core.requests import NewToken

OLD = tokens.RETENTION_SECONDS + 1


async def names(rig: Rig) -> set[str]:
    return {row["name"] for row in await rig.rows(t.tokens)}


async def add(
    rig: Rig, name: str, *, via: str = "token", expires: float | None = None, revoked: float | None = None
) -> None:
    """`expires` and `revoked` are seconds before now."""
    now, made = rig.clock.now(), rig.clock.now() - 1000 * DAY
    seconds = None if expires is None else now - expires - made
    id = f"tok-{name}"

    def insert(conn: Any) -> None:
        tokens.issue(conn, OWNER, id, made, name=name, via=via, scopes=frozenset(), seconds=seconds)
        ended = None if revoked is None else now - revoked
        conn.execute(update(t.tokens).where(t.tokens.c.id == id).values(revoked_at=ended))

    await rig.ports.db.write(insert)


@pytest.fixture
async def holding(town: Town) -> Rig:
    """A process that has the duty of retention, in a town of people."""
    await town.rig.duties.renew(town.rig.ports.db, town.rig.clock)
    return town.rig


async def test_those_that_ended_long_ago_go_and_the_others_stay(holding: Rig) -> None:
    rig, before = holding, await names(holding)
    for name in ("token", "session", "share", "login"):
        await add(rig, f"expired {name}", via=name, expires=OLD)
        await add(rig, f"revoked {name}", via=name, revoked=OLD, expires=-DAY)
    await add(rig, "both", revoked=OLD, expires=OLD)
    kept = {"good", "endless", "just expired", "just revoked"}
    await add(rig, "good", expires=-DAY)
    await add(rig, "endless")
    await add(rig, "just expired", expires=OLD - DAY)
    await add(rig, "just revoked", revoked=OLD - DAY)
    await rig.services.retention.round()
    assert await names(rig) == before | kept


async def test_what_was_done_with_them_stays(holding: Rig, town: Town) -> None:
    scopes = frozenset({Permission.READ})
    made = await town.control.tokens.create(OWNER, NewToken(name="laptop", scopes=scopes, days=60 / DAY, user="member"))
    before = await holding.rows(t.audit)
    assert any(row["target"] == made.id for row in before)
    holding.clock.move(60 + OLD)
    await holding.duties.renew(holding.ports.db, holding.clock)
    await holding.services.retention.round()
    assert "laptop" not in await names(holding)
    assert await holding.rows(t.audit) == before
    with pytest.raises(NotFound):
        await town.control.tokens.revoke(OWNER, made.id)


async def test_many_go_in_parts(holding: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "TOKENS_AT_ONCE", 3)
    before, parts = await names(holding), []
    for number in range(10):
        await add(holding, f"old {number}", **{"revoked" if number % 2 else "expires": OLD + number})

    def forget(conn: Any, ids: Any, until: float) -> int:
        parts.append(tokens_forget(conn, ids, until))
        return parts[-1]

    tokens_forget = tokens.delete_ended
    monkeypatch.setattr(tokens, "delete_ended", forget)
    await holding.services.retention.round()
    assert await names(holding) == before
    assert (sum(parts), max(parts) <= 6, len(parts)) == (10, True, 2)


async def test_one_who_has_lost_the_duty_removes_nothing(holding: Rig) -> None:
    await add(holding, "old", revoked=OLD)
    other = await other_worker(holding, "w2")
    holding.clock.move(1000)
    await other.duties.renew(other.ports.db, other.clock)
    await holding.services.retention.round()
    assert "old" in await names(holding), "he does not know yet that another has it"
    await other.services.retention.round()
    assert "old" not in await names(holding)


async def test_after_a_restore_nothing_is_removed_until_that_is_confirmed(holding: Rig) -> None:
    await add(holding, "old", revoked=OLD)
    await holding.ports.db.write(lambda conn: restore_hold.mark_restored(conn, holding.clock.now(), 0.0))
    await holding.services.retention.round()
    assert "old" in await names(holding)


def test_they_are_found_by_when_they_ended() -> None:
    engine = create_engine("sqlite://")
    t.metadata.create_all(engine)
    with engine.connect() as conn:
        for end in ("revoked_at", "expires_at"):
            query = f"SELECT id FROM tokens WHERE {end} < 1.0 ORDER BY {end} LIMIT 3"
            steps = [row[3] for row in conn.execute(text(f"EXPLAIN QUERY PLAN {query}"))]
            assert steps == [f"SEARCH tokens USING INDEX ix_tokens_{end} ({end}<?)"]
