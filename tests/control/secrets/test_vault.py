"""Secrets are encrypted, for those who may use them, and survive a rotation that dies at any point."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.authorisation.populated_app import PopulatedApp
from tests.control.harness import ControlHarness, job_spec, other_worker
from tests.control.scoped import ScopedControl

from crucible.control.agents.slots import AttemptGone
from crucible.control.db import meta
from crucible.control.db import schema as t
from crucible.control.reconcile.crashpoints import arm, disarm
from crucible.control.secrets import Vault, rows
from crucible.control.secrets.keyring import Keyring, new_key
from crucible.core.errors import BadInput, Conflict, Forbidden, NotFound, Trouble
from crucible.core.people.identity import OWNER
from crucible.core.secret import Secret
from crucible.core.views.people import RotationView

VALUE = "hunter2-hunter2"
POINTS = ("secrets.key_added", "secrets.before_commit", "secrets.after_commit")


class Died(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    disarm()


@pytest.fixture
def keys(harness: ControlHarness) -> Path:
    return harness.deployment.scratch / "secrets.keys"


async def put(harness: ControlHarness, name: str = "TOKEN", value: str = VALUE, project: str = "default") -> None:
    await harness.services.vault.set(OWNER, project, name, Secret(value))


async def got(harness: ControlHarness, name: str = "TOKEN", project: str = "default") -> str:
    return (await harness.read(lambda conn: harness.services.vault.values(conn, project, {"X": name})))["X"].reveal()


async def test_a_value_comes_back_to_jobs_and_lies_encrypted(harness: ControlHarness) -> None:
    await put(harness)
    assert await got(harness) == VALUE
    (row,) = await harness.rows(t.secrets)
    assert VALUE not in json.dumps(row)
    assert (row["project"], row["name"], row["updated_by"]) == ("default", "TOKEN", "owner")


async def test_the_list_has_names_and_no_values(harness: ControlHarness) -> None:
    await put(harness, "B")
    await put(harness, "A")
    found = (await harness.services.vault.list_secrets(OWNER, "default")).items
    assert [(item.name, item.updated_by) for item in found] == [("A", "owner"), ("B", "owner")]
    assert all(set(item.as_json()) == {"name", "updated_at", "updated_by"} for item in found)


async def test_a_new_value_takes_the_place_of_the_old(harness: ControlHarness) -> None:
    await put(harness)
    view, created = await harness.services.vault.set(OWNER, "default", "TOKEN", Secret("another value"))
    assert (view.name, created) == ("TOKEN", False)
    assert await got(harness) == "another value"


async def test_one_that_was_removed_is_gone(harness: ControlHarness) -> None:
    await put(harness)
    await harness.services.vault.remove(OWNER, "default", "TOKEN")
    with pytest.raises(NotFound, match="no secret 'TOKEN'"):
        await got(harness)
    with pytest.raises(NotFound):
        await harness.services.vault.remove(OWNER, "default", "TOKEN")


@pytest.mark.parametrize(("name", "value"), [("no name", VALUE), ("TOKEN", "abc")])
async def test_what_cannot_be_kept_is_refused(harness: ControlHarness, name: str, value: str) -> None:
    with pytest.raises(BadInput):
        await put(harness, name, value)


async def test_projects_have_their_own(populated_app: PopulatedApp) -> None:
    await put(populated_app.harness, project="alpha", value="of alpha")
    await put(populated_app.harness, project="beta", value="of beta")
    assert [await got(populated_app.harness, project=name) for name in ("alpha", "beta")] == ["of alpha", "of beta"]
    with pytest.raises(NotFound):
        await got(populated_app.harness)


async def test_who_may_what(populated_app: PopulatedApp) -> None:
    vault = populated_app.control.secrets
    who = {name: await populated_app.identity(name) for name in ("stranger", "viewer", "member", "manager")}
    await vault.set(who["manager"], "alpha", "TOKEN", Secret(VALUE))
    assert [item.updated_by for item in (await vault.list_secrets(who["member"], "alpha")).items] == ["manager"]
    for name in ("member", "viewer"):
        with pytest.raises(Forbidden):
            await vault.set(who[name], "alpha", "TOKEN", Secret(VALUE))
        with pytest.raises(Forbidden):
            await vault.remove(who[name], "alpha", "TOKEN")
        with pytest.raises(Forbidden):
            await vault.rotate(who[name])
    with pytest.raises(Forbidden):
        await vault.list_secrets(who["viewer"], "alpha")
    with pytest.raises(NotFound, match="no project"):
        await vault.list_secrets(who["stranger"], "alpha")
    with pytest.raises(NotFound, match="no project"):
        await vault.set(OWNER, "nowhere", "TOKEN", Secret(VALUE))


async def test_what_was_done_is_recorded_without_values(populated_app: PopulatedApp) -> None:
    vault, manager = populated_app.control.secrets, await populated_app.identity("manager")
    await vault.set(manager, "alpha", "TOKEN", Secret(VALUE))
    await vault.remove(manager, "alpha", "TOKEN")
    await vault.rotate(OWNER)
    found = [row for row in await populated_app.harness.rows(t.audit) if row["action"].startswith("secret")]
    assert [(row["name"], row["action"], row["target"], row["project"]) for row in found] == [
        ("manager", "secret.set", "TOKEN", "alpha"),
        ("manager", "secret.remove", "TOKEN", "alpha"),
        ("owner", "secrets.rotate", "", None),
    ]
    assert VALUE not in json.dumps(found)


# Keys


async def test_the_keys_are_made_on_first_use_for_their_owner_alone(harness: ControlHarness, keys: Path) -> None:
    assert not keys.exists()
    await put(harness)
    assert keys.stat().st_mode & 0o777 == 0o600
    assert len(Keyring(keys).read()) == 1


async def test_rotation_leaves_one_new_key_and_every_value(harness: ControlHarness, keys: Path) -> None:
    for n in range(5):
        await put(harness, f"S{n}", f"value number {n}")
    before, rows_before = keys.read_text(), await harness.rows(t.secrets)
    assert await harness.services.vault.rotate(OWNER) == RotationView(secrets=5, keys=1)
    assert len(Keyring(keys).read()) == 1
    assert keys.read_text() != before
    assert [await got(harness, f"S{n}") for n in range(5)] == [f"value number {n}" for n in range(5)]
    after = await harness.rows(t.secrets)
    assert not {row["ciphertext"] for row in after} & {row["ciphertext"] for row in rows_before}
    assert [row["updated_at"] for row in after] == [row["updated_at"] for row in rows_before]


async def test_rotation_before_there_is_anything(harness: ControlHarness, keys: Path) -> None:
    assert (await harness.services.vault.rotate(OWNER)).secrets == 0
    await put(harness)
    assert await got(harness) == VALUE


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("how", ["a new start", "another rotation", "neither"])
async def test_a_rotation_that_dies_loses_nothing(harness: ControlHarness, keys: Path, point: str, how: str) -> None:
    await put(harness)
    old = Keyring(keys).read()[0]

    def die() -> None:
        raise Died

    arm(point, die)
    with pytest.raises(Died):
        await harness.services.vault.rotate(OWNER)
    disarm()
    assert old in Keyring(keys).read(), "the old key stays until all rows are encrypted anew"
    again = Vault(harness.ports, harness.services.access, keys)
    assert await got(harness) == VALUE
    await put(harness, "MEANWHILE", "set in between")
    if how == "a new start":
        await again.finish_rotation()
    elif how == "another rotation":
        await again.rotate(OWNER)
    if how != "neither":
        assert old not in Keyring(keys).read()
        assert len(Keyring(keys).read()) == 1
    assert [await got(harness), await got(harness, "MEANWHILE")] == [VALUE, "set in between"]


async def test_a_start_leaves_a_single_key_alone(harness: ControlHarness, keys: Path) -> None:
    await harness.services.vault.finish_rotation()
    assert not keys.exists()
    await put(harness)
    before = keys.read_text()
    await harness.services.vault.finish_rotation()
    assert keys.read_text() == before


async def test_two_rotations_at_once_are_one(harness: ControlHarness, keys: Path) -> None:
    await put(harness)
    with Keyring(keys).locked(), pytest.raises(Conflict, match="being changed"):
        await harness.services.vault.rotate(OWNER)
    assert await got(harness) == VALUE


@pytest.mark.parametrize("spoil", ["missing", "cut off", "another"])
async def test_a_key_file_that_is_not_the_one(harness: ControlHarness, keys: Path, spoil: str) -> None:
    await put(harness)
    good = keys.read_text()
    if spoil == "missing":
        keys.unlink()
    else:
        keys.write_text(good[:20] if spoil == "cut off" else new_key().text)
    for attempt in (got(harness), put(harness, "OTHER"), harness.services.vault.rotate(OWNER)):
        with pytest.raises(Trouble) as caught:
            await attempt
        assert "backup" in caught.value.fix
        assert VALUE not in str(caught.value)
    keys.write_text(good)
    assert await got(harness) == VALUE


async def test_who_has_lost_the_keys_begins_anew(harness: ControlHarness, keys: Path) -> None:
    await put(harness)
    keys.unlink()
    await harness.services.vault.remove(OWNER, "default", "TOKEN")
    await put(harness, value="a new beginning")
    assert await got(harness) == "a new beginning"


async def test_a_server_whose_copy_of_the_keys_is_old_says_so_and_changes_nothing(
    harness: ControlHarness, keys: Path
) -> None:
    await put(harness)
    other = await other_worker(harness, "w2")
    twin = Vault(other.ports, other.services.access, keys.with_name("copy.keys"))
    keys.with_name("copy.keys").write_text(keys.read_text())
    await harness.services.vault.rotate(OWNER)
    with pytest.raises(Trouble, match="is not the one"):
        await twin.set(OWNER, "default", "TOKEN", Secret("with an old key"))
    keys.with_name("copy.keys").write_text(keys.read_text())
    await twin.set(OWNER, "default", "TOKEN", Secret("with the new key"))
    assert await got(harness) == "with the new key"


async def test_a_row_that_was_moved_to_another_name_is_refused(harness: ControlHarness) -> None:
    await put(harness, "MINE", "my own value")
    await put(harness, "THEIRS", "their own value")
    theirs = (await harness.rows(t.secrets))[1]["ciphertext"]
    moved = update(t.secrets).where(t.secrets.c.name == "MINE").values(ciphertext=theirs)
    await harness.sql(lambda conn: conn.execute(moved))
    with pytest.raises(Trouble, match="cannot be decrypted"):
        await got(harness, "MINE")


async def test_the_database_names_the_key_and_does_not_hold_it(harness: ControlHarness, keys: Path) -> None:
    await put(harness)
    (key,) = Keyring(keys).read()
    assert await harness.read(lambda conn: meta.get(conn, rows.KEY)) == key.fingerprint
    assert key.text not in key.fingerprint
    assert key.text not in repr(key)


# Jobs


async def test_a_job_names_secrets_that_are_there(populated_app: PopulatedApp) -> None:
    member = ScopedControl(populated_app.control, await populated_app.identity("member"))
    spec = job_spec(project="alpha", secrets={"HF": "TOKEN"})
    with pytest.raises(NotFound) as caught:
        await member.jobs.submit(spec, None)
    assert "crucible secrets set TOKEN --project alpha" in caught.value.fix
    await put(populated_app.harness, project="beta")
    with pytest.raises(NotFound):
        await member.jobs.submit(spec, None)
    await put(populated_app.harness, project="alpha")
    view = (await member.jobs.submit(spec, None)).view
    assert view.secrets == {"HF": "TOKEN"}
    assert VALUE not in view.model_dump_json()


async def test_a_runner_is_handed_the_values_of_that_moment(harness: ControlHarness) -> None:
    await put(harness)
    job = await harness.submit(secrets={"HF": "TOKEN", "SAME": "TOKEN"})
    await harness.host_up()
    attempt = (await harness.attempt(job)).id
    await put(harness, value="newer than the job")
    assert await harness.agents.secrets(attempt) == {"HF": "newer than the job", "SAME": "newer than the job"}


async def test_the_document_has_names_of_variables_alone(harness: ControlHarness) -> None:
    await put(harness)
    await harness.submit(secrets={"HF": "TOKEN"})
    document = await harness.agents.desired(await harness.host_up(), 0, 0)
    assert document is not None
    assert document.assignments[0].secrets == ("HF",)
    assert VALUE not in repr(document)


async def test_an_attempt_that_is_over_is_handed_nothing(harness: ControlHarness) -> None:
    await put(harness)
    _, runner = await harness.running(secrets={"HF": "TOKEN"})
    await runner.end()
    with pytest.raises(AttemptGone, match="has ended"):
        await harness.agents.secrets(runner.attempt)
    with pytest.raises(AttemptGone, match="no such attempt"):
        await harness.agents.secrets("att-unheard-of")


async def test_a_job_without_secrets_needs_no_keys(harness: ControlHarness, keys: Path) -> None:
    job = await harness.submit()
    await harness.host_up()
    assert await harness.agents.secrets((await harness.attempt(job)).id) == {}
    assert not keys.exists()


async def test_a_secret_that_was_removed_meanwhile(harness: ControlHarness) -> None:
    await put(harness)
    job, runner = await harness.running(secrets={"HF": "TOKEN"})
    await harness.services.vault.remove(OWNER, "default", "TOKEN")
    with pytest.raises(NotFound, match="no secret 'TOKEN'"):
        await harness.agents.secrets(runner.attempt)
    await runner.end(code=1)
    with pytest.raises(NotFound, match="no secret 'TOKEN'"):
        await harness.revival.resume(job, None, None)
    with pytest.raises(NotFound, match="no secret 'TOKEN'"):
        await harness.revival.rerun(job, None)
    await put(harness)
    await harness.revival.resume(job, None, None)


async def test_more_than_a_program_can_be_given_is_refused(harness: ControlHarness) -> None:
    await put(harness, value="x" * 32 * 1024)
    job = await harness.submit(secrets={f"BIG_{n}": "TOKEN" for n in range(9)})
    await harness.host_up()
    with pytest.raises(BadInput, match="at most 262144 are allowed"):
        await harness.agents.secrets((await harness.attempt(job)).id)


async def test_after_a_restore_a_runner_nobody_knows_is_told_to_come_back(harness: ControlHarness) -> None:
    await harness.sql(lambda conn: meta.put(conn, "restored_at", "1.0"))
    with pytest.raises(Trouble):
        await harness.agents.secrets("att-from-before")
