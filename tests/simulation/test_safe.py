from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection
from tests.simulation.books import Books

from crucible.control.secrets import KEYS_FILE, Vault
from crucible.core.people.identity import DEFAULT_PROJECT
from crucible.core.secret import Secret
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.checks.secrets import SecretHistory, SecretsCheck


@pytest.fixture
def safe(books: Books, tmp_path: Path) -> SecretsCheck:
    return SecretsCheck(books.db, tmp_path / KEYS_FILE)


def keep(books: Books, safe: SecretsCheck, value: str) -> None:
    vault = Vault(None, None, safe.keys)  # type: ignore[arg-type]  # no port is used

    def put(conn: Connection) -> None:
        vault.put(conn, DEFAULT_PROJECT, "TOKEN", Secret(value), 0.0, "owner")

    books.now(put)


def told(entry: SecretHistory, value: str) -> None:
    entry.begin(value)
    entry.end(value)
    entry.acknowledge(value)


def test_what_was_acknowledged_is_there_and_nothing_older(books: Books, safe: SecretsCheck) -> None:
    safe.check()
    told(safe.entries["TOKEN"], "one")
    with pytest.raises(InvariantBroken, match="TOKEN is None, and was last set to one"):
        safe.check()
    keep(books, safe, "one")
    safe.check()
    told(safe.entries["TOKEN"], "two")
    with pytest.raises(InvariantBroken, match="TOKEN is 'one', and was last set to two"):
        safe.check()


def test_what_nobody_asked_for_is_told(books: Books, safe: SecretsCheck) -> None:
    keep(books, safe, "other")
    safe.check()
    safe.entries["TOKEN"].begin("one")
    with pytest.raises(InvariantBroken, match="TOKEN is 'other'"):
        safe.check()


def test_a_secret_whose_key_is_lost_is_told(books: Books, safe: SecretsCheck) -> None:
    keep(books, safe, "one")
    safe.check()
    safe.keys.unlink()
    with pytest.raises(InvariantBroken, match="secrets cannot be read"):
        safe.check()


def test_a_write_without_an_answer_counts_until_a_later_one_is_acknowledged() -> None:
    entry = SecretHistory()
    told(entry, "one")
    entry.begin("two")
    entry.end("two")
    assert entry.possible == {"one", "two"}
    told(entry, "three")
    assert entry.possible == {"three"}


def test_a_write_that_is_still_under_way_may_come_after_a_later_one() -> None:
    entry = SecretHistory()
    entry.begin("one")
    told(entry, "two")
    assert entry.possible == {"one", "two"}
    entry.end("one")
    told(entry, "three")
    assert entry.possible == {"three"}
