from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection
from tests.control.harness import ControlHarness, service

from crucible.control.jobs import bulk_views, listing, queries
from crucible.control.jobs.listing import read_cursor, write_cursor
from crucible.core.errors import BadInput, UnknownName
from crucible.core.ids import Prefix, make_id
from crucible.core.job.job_filter import JobFilter
from crucible.core.people.identity import OWNER
from crucible.wire.documents.messages import MessageKind


async def listed(harness: ControlHarness, *, limit: int = 50, cursor: str | None = None, **given: Any) -> Any:
    wanted = JobFilter(**given)
    return await harness.read(lambda conn: listing.list_jobs(conn, wanted, limit, cursor, harness.clock.now()))


async def ids(harness: ControlHarness, **given: Any) -> list[str]:
    return [item.id for item in (await listed(harness, **given)).items]


async def test_pages_are_newest_first_and_join_without_gap_or_double(harness: ControlHarness) -> None:
    jobs = [await harness.submit() for _ in range(7)]
    seen, cursor, pages = [], None, 0
    while True:
        page = await listed(harness, limit=3, cursor=cursor)
        seen += [item.id for item in page.items]
        cursor, pages = page.next, pages + 1
        if cursor is None:
            break
    assert seen == jobs[::-1]
    assert pages == 3


async def test_a_full_last_page_has_no_next(harness: ControlHarness) -> None:
    for _ in range(3):
        await harness.submit()
    assert (await listed(harness, limit=3)).next is None


@pytest.mark.parametrize("limit", [0, -5])
async def test_a_page_has_at_least_one_item(harness: ControlHarness, limit: int) -> None:
    await harness.submit()
    assert len((await listed(harness, limit=limit)).items) == 1


async def test_a_job_that_comes_between_two_pages_shifts_nothing(harness: ControlHarness) -> None:
    jobs = [await harness.submit() for _ in range(4)]
    first = await listed(harness, limit=2)
    await harness.submit()
    second = await listed(harness, limit=2, cursor=first.next)
    assert [i.id for i in (*first.items, *second.items)] == jobs[::-1]


async def test_a_strange_cursor_is_refused(harness: ControlHarness) -> None:
    for cursor in ("1; DROP TABLE jobs", "a", "%%%", "äöü", make_id(Prefix.JOB, 1, 1), write_cursor("mch-1"), "=" * 9):
        with pytest.raises(BadInput, match="cursor is not valid") as raised:
            await listed(harness, cursor=cursor)
        assert "`next`" in raised.value.fix


async def test_filters(harness: ControlHarness) -> None:
    done, runner = await harness.running()
    await runner.end()
    failed, runner = await harness.running()
    await runner.end(code=1)
    running, _ = await harness.running(cpus=3)
    queued = await harness.submit(cpus=4)
    cancelled = await harness.submit(cpus=4)
    await service(harness).jobs.cancel(OWNER, cancelled)

    async def found(**given: Any) -> set[str]:
        return set(await ids(harness, **given))

    assert await found() == {done, failed, running, queued, cancelled}
    assert await found(active=True) == {running, queued}
    assert await found(status=["completed", "failed"]) == {done, failed}
    assert await found(status=["queued"]) == {queued}
    assert await found(status=["cancelled"], active=True) == set()
    with pytest.raises(UnknownName):
        await found(status=["complete"])


async def test_a_queued_job_knows_how_many_are_before_it(harness: ControlHarness) -> None:
    await harness.submit(cpus=4)
    waiting = [await harness.submit(cpus=4) for _ in range(3)]
    items = (await listed(harness, status=["queued"])).items
    texts = [item.waiting for item in items if item.id in waiting][::-1]
    assert str(texts[0]).startswith("waits for 4 CPUs")
    assert texts[1:] == ["behind 1 other job in the queue", "behind 2 other jobs in the queue"]


@pytest.mark.parametrize("many", [listing.COUNT_LIMIT, 2], ids=["few jobs", "jobs that count as many"])
async def test_every_filter_narrows(two_backends: ControlHarness, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "COUNT_LIMIT", many)
    harness = two_backends
    first = await harness.submit(name="Vision nightly 1", tags=("team=vision", "sweep"), kind="train")
    harness.clock.move(3600)
    second = await harness.submit(
        name="vision nightly 2", tags=("team=speech", "sweep"), kind="benchmark", backend="ssh"
    )
    harness.clock.move(3600)
    third = await harness.submit(command=("make", "Größe"), tags=("run=a=b",))
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({"backend": ["ssh"]}, [second]),
        ({"backend": ["ssh,local"]}, [third, second, first]),
        ({"backend": ["nowhere"]}, []),
        ({"kind": ["benchmark"]}, [second]),
        ({"kind": ["train"]}, [third, first]),
        ({"project": ["default"]}, [third, second, first]),
        ({"project": ["other"]}, []),
        ({"name": "NIGHTLY"}, [second, first]),
        ({"name": "vision*"}, [second, first]),
        ({"name": "nightly*"}, []),
        ({"named": "vision nightly 2"}, [second]),
        ({"named": "vision nightly"}, []),
        ({"tag": ["team"]}, [second, first]),
        ({"tag": ["team=vision"]}, [first]),
        ({"tag": ["team=vision", "sweep"]}, [first]),
        ({"tag": ["sweep", "team=speech"]}, [second]),
        ({"tag": ["run=a=b"]}, [third]),
        ({"tag": ["run=a"]}, []),
        ({"text": "größe"}, [third]),
        ({"text": "train.py"}, [second, first]),
        ({"text": "%"}, []),
        ({"text": "train_py"}, []),
        ({"created_after": harness.clock.now() - 4000}, [third, second]),
        ({"created_before": harness.clock.now() - 3000}, [second, first]),
        ({"created_after": harness.clock.now() - 4000, "created_before": harness.clock.now() - 3000}, [second]),
        (
            {"tag": ["sweep"], "backend": ["ssh"], "name": "2", "status": ["queued", "running"], "active": True},
            [second],
        ),
        ({"tag": ["sweep"], "status": ["failed"]}, []),
        ({"tag": ["sweep", "team"], "backend": ["ssh"], "text": "train.py", "kind": ["benchmark"]}, [second]),
    ]
    for given, found in expected:
        assert await ids(harness, **given) == found, given


async def test_where_few_rows_fit_they_are_looked_for_once(
    two_backends: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "COUNT_LIMIT", 3)
    harness = two_backends
    jobs = [await harness.submit(tags=("sweep",), backend="ssh" if n < 2 else "local") for n in range(5)]
    wanted = JobFilter(tag=("sweep",), backend=("ssh",))
    way = await harness.read(lambda conn: listing._choose_plan(conn, wanted))
    assert sorted(way.rows or ()) == sorted(jobs[:2])
    first = await listed(harness, limit=1, tag=["sweep"], backend=["ssh"])
    second = await listed(harness, limit=1, cursor=first.next, tag=["sweep"], backend=["ssh"])
    assert [item.id for item in (*first.items, *second.items)] == jobs[1::-1]


async def test_pages_join_under_every_filter(harness: ControlHarness) -> None:
    jobs = [await harness.submit(name=f"n{n}", tags=("all", f"n={n}")) for n in range(5)]
    for given in ({"tag": ["all"]}, {"name": "n"}, {"kind": ["train"]}, {"active": True}, {"tag": ["n"], "text": "py"}):
        first = await listed(harness, limit=3, **given)
        second = await listed(harness, limit=3, cursor=first.next, **given)
        assert [item.id for item in (*first.items, *second.items)] == jobs[::-1], given
        assert second.next is None


async def test_a_job_looks_the_same_among_many(harness: ControlHarness) -> None:
    """The views of many are read another way than that of one."""
    done, runner = await harness.running(tags=("a", "b=c"), name="done")
    stored = {"name": "step_1.pt", "form": "file", "size": 3, "sha256": "0" * 64, "step": 1, "metric": None}
    await runner.say(MessageKind.PROGRESS, fraction=0.5)
    await runner.say(MessageKind.CHECKPOINT, **stored)
    await runner.end()
    await harness.running(cpus=3)
    for _ in range(3):
        await harness.submit(cpus=4)
    now = harness.clock.now()
    many = (await listed(harness)).items
    assert list(many) == [await harness.read(lambda conn, job=job: queries.read_job(conn, job.id, now)) for job in many]
    assert done == many[-1].id


async def test_jobs_that_do_not_exist_are_left_out(harness: ControlHarness) -> None:
    job = await harness.submit()
    ids = [make_id(Prefix.JOB, 1, 1), job, make_id(Prefix.JOB, 2, 2)]
    assert [view.id for view in await harness.read(lambda conn: bulk_views.job_views(conn, ids, 0.0))] == [job]
    assert await harness.read(lambda conn: bulk_views.job_views(conn, [], 0.0)) == []


def test_a_list_of_what_is_wanted_comes_in_a_few_lengths() -> None:
    assert bulk_views.pad_ids([]) == []
    assert bulk_views.pad_ids(["a"]) == ["a"]
    assert bulk_views.pad_ids(["a", "b"]) == ["a", *["b"] * 7]
    assert len(bulk_views.pad_ids(["a"] * 65)) == bulk_views.CHUNK


def test_a_cursor_is_read_as_it_was_written() -> None:
    job = make_id(Prefix.JOB, 5, 5)
    assert read_cursor(write_cursor(job)) == job
    assert read_cursor(None) is None
    assert job not in write_cursor(job)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"status": ["completed"]},
        {"backend": ["local"]},
        {"project": ["default"]},
        {"kind": ["train"]},
        {"named": "x"},
        {"tag": ["a"]},
        {"tag": ["a=b"]},
    ],
)
async def test_what_is_equal_is_found_by_an_index_in_the_order_of_the_answer(
    harness: ControlHarness, given: dict[str, Any]
) -> None:
    wanted = JobFilter(**given)

    def plan(conn: Connection) -> str:
        query = listing._query(wanted, listing._choose_plan(conn, wanted), None, conn.dialect.name).limit(51)
        text = str(query.compile(dialect=conn.dialect, compile_kwargs={"literal_binds": True}))
        return " ".join(row[3] for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}"))

    if await harness.read(lambda conn: conn.dialect.name) != "sqlite":
        pytest.skip("PostgreSQL plans by what is in the tables")
    found = await harness.read(plan)
    assert "TEMP B-TREE" not in found
    assert "INDEX" in found
