"""The composition root: one server per state folder, found by its file, ended by a request."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from tests.certificates import make_certificate
from tests.control.fakes import DEPLOYMENT
from tests.control.harness import ControlHarness, give_back, join, make_harness, secret, service
from tests.server.app import BrokenDb
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from crucible import app
from crucible.agent.host.bootstrap import server_address
from crucible.agent.link.channels import open_machine_channel
from crucible.agent.link.connection import Refused
from crucible.agent.sessions.session_socket import open_session_socket
from crucible.app.options import parse
from crucible.control.db import DatabaseMissing
from crucible.control.runtime.system_ports import LocalWakeups
from crucible.core.errors import BadInput, RefusedByPolicy, Trouble
from crucible.server.folder_lock import AlreadyRunning, StateFolderLost
from crucible.server.http.listen import PortInUse, bind, port_of
from crucible.server.state_folder import StateFolder, open_state_folder
from crucible.settings import Setting, Settings, load_settings
from crucible.settings.parsers import DatabaseUrl
from crucible.storage import open_store
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.http.client import BaseUrl
from crucible.wire.process import this_process

DEADLINE = 10.0
OPTIONS = app.Options(True, "n-1")


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    """A control plane in memory; a server that runs on it closes it in the end."""
    harness = await make_harness(tmp_path)
    yield harness
    await give_back(harness.ports.db)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    environ = {"CRUCIBLE_HOME": str(tmp_path / "home")}
    return load_settings(environ=environ, folder=tmp_path, user_config=tmp_path / "none.toml")


class Running:
    """A server in this loop, and a client with its token. `harness` reaches its control plane."""

    def __init__(self, home: Path, task: asyncio.Task[None], http: httpx2.AsyncClient, harness: ControlHarness) -> None:
        self.home = home
        self.task = task
        self.http = http
        self.harness = harness

    @property
    def found(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "server.json").read_text())
        return found

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.home / 'token').read_text()}"}


@asynccontextmanager
async def running(
    settings: Settings,
    harness: ControlHarness,
    options: app.Options = OPTIONS,
    stopping: Callable[[int], None] = lambda code: None,
) -> AsyncIterator[Running]:
    stop, control = asyncio.Event(), service(harness)
    serving = app.serve(options, settings, lambda home, settings: control, stop=stop, stopping=stopping)
    task = asyncio.create_task(serving)
    home = settings.home.value
    async with httpx2.AsyncClient(timeout=DEADLINE) as http:
        try:
            await until(lambda: task.done() or (home / "server.json").exists())
            if task.done():
                await task
            yield Running(home, task, http, replace(harness, services=control._services))
        finally:
            stop.set()
            with suppress(Trouble, ZeroDivisionError):
                await asyncio.wait_for(task, DEADLINE)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.enable_socket
async def test_a_server_is_found_by_its_file(settings: Settings, harness: ControlHarness) -> None:
    async with running(settings, harness) as server:
        found = server.found
        assert found.keys() == {"url", "agents_url", "pid", "start_time", "version", "nonce", "deployment", "folder"}
        assert (found["nonce"], found["pid"], found["deployment"]) == ("n-1", os.getpid(), DEPLOYMENT)
        assert found["start_time"] == this_process().start_time
        assert stat.S_IMODE((server.home / "server.json").stat().st_mode) == 0o600
        assert (server.home / "agents.url").read_text() == found["agents_url"]
        assert (server.home / "agents.address").read_text() == f"unix:{server.home}/agents.sock"
        ready = await server.http.get(f"{found['url']}/readyz")
        assert ready.json() == {
            "ready": True,
            "nonce": "n-1",
            "version": found["version"],
            "deployment": DEPLOYMENT,
        }


@pytest.mark.enable_socket
async def test_agents_are_told_the_address_of_the_proxy_before_it(settings: Settings, harness: ControlHarness) -> None:
    outside = replace(settings, agents_url=Setting("https://agents.example"))
    async with running(outside, harness) as server:
        assert server.found["agents_url"] == "https://agents.example"
        for name in ("agents.url", "agents.address"):
            assert (server.home / name).read_text() == "https://agents.example"


@pytest.mark.enable_socket
async def test_agents_on_this_computer_need_not_reach_the_name_of_the_certificate(
    settings: Settings, harness: ControlHarness, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = {"tls_certificate": Setting(certificate), "tls_key": Setting(key)}
    named = replace(settings, **tls, public_url=Setting("https://crucible.invalid"))
    async with running(named, harness) as server:
        assert server.found["agents_url"].startswith("https://crucible.invalid:")
        assert (server.home / "agents.url").read_text() == server.found["agents_url"]
        assert (server.home / "agents.address").read_text() == f"unix:{server.home}/agents.sock"


async def test_an_address_for_agents_that_does_not_encrypt_is_refused(
    settings: Settings, harness: ControlHarness
) -> None:
    with pytest.raises(RefusedByPolicy, match="without encryption"):
        async with running(replace(settings, agents_url=Setting("http://agents.example")), harness):
            pass
    assert not (settings.home.value / "agents.address").exists()


async def launched(harness: ControlHarness) -> str:
    """Launch the intended machine; its host has not claimed it yet. Return the machine's ID."""
    while await harness.performer.perform_due():
        pass
    return (await harness.machine()).id


@pytest.mark.enable_socket
async def test_both_listeners_answer(settings: Settings, harness: ControlHarness) -> None:
    async with running(settings, harness) as server:
        found = server.found
        jobs = await server.http.get(f"{found['url']}/api/v1/jobs", headers=server.headers)
        assert jobs.status_code == 200
        assert "server" not in jobs.headers
        about = (await server.http.get(f"{found['url']}/api/v1/server", headers=server.headers)).json()
        assert (about["url"], about["agents_url"]) == (found["url"], found["agents_url"])
        await server.harness.submit()
        machine = await launched(server.harness)
        body = {"machine": machine, "nonce": secret("nonce", machine).decode(), "native_id": f"i-{machine}"}
        assert (await server.http.post(f"{found['agents_url']}/agent/v1/claim", json=body)).status_code == 200
        assert (await server.http.get(f"{found['agents_url']}/api/v1/jobs")).status_code == 404


@pytest.mark.enable_socket
@pytest.mark.parametrize("folder", ["home", "long" * 40])
async def test_agents_on_this_computer_have_a_socket(
    settings: Settings, harness: ControlHarness, tmp_path: Path, folder: str
) -> None:
    async with running(replace(settings, home=Setting(tmp_path / folder)), harness) as server:
        await harness.submit()
        machine = await launched(harness)
        bootstrap = Bootstrap(machine, agents_url_file=str(server.home / "agents.address"))
        address = BaseUrl.parse(server_address(bootstrap).read())
        claiming = open_machine_channel(bootstrap, None)
        found = await asyncio.to_thread(claiming.claim, secret("nonce", machine).decode(), f"i-{machine}")
        assert found == secret("machine", machine).decode()
        channel = open_machine_channel(bootstrap, found)
        channel.ask(0, 0.0, None)
        document = await asyncio.to_thread(channel.answer)
        assert document is not None
        with pytest.raises(Refused) as refused:
            await asyncio.to_thread(
                open_session_socket, server_address(bootstrap), "/agent/v1/attempts/a/0/sessions/s", "x"
            )
        assert refused.value.status == 401
    assert not Path(address.socket).exists()


@pytest.mark.enable_socket
async def test_a_socket_over_the_network(settings: Settings, harness: ControlHarness) -> None:
    async with running(settings, harness) as server:
        job, runner = await server.harness.running()
        await runner.log(0, 0, b"hello")
        url = server.found["url"].replace("http", "ws") + f"/api/v1/jobs/{job}/stream"
        with pytest.raises(InvalidStatus) as caught:
            async with connect(url):
                pass
        assert caught.value.response.status_code == 401
        assert json.loads(caught.value.response.body)["fix"]
        async with connect(url, additional_headers=server.headers) as socket:
            frames = [json.loads(await socket.recv())]
            await runner.end()
            frames += [json.loads(frame) async for frame in socket]
        assert "".join(frame["text"] for frame in frames if frame["stream"] == "log") == "hello"
        assert (frames[-1]["stream"], frames[-1]["job"]["status"]) == ("job", "completed")
        assert socket.close_code == 1000


@pytest.mark.enable_socket
async def test_a_request_to_stop_ends_it_soon_though_agents_wait(settings: Settings, harness: ControlHarness) -> None:
    async with running(settings, harness) as server:
        found = server.found
        await server.harness.running()
        machine = await server.harness.machine()
        version = (await server.harness.agents.read_desired(machine.id)).version
        poll = asyncio.create_task(
            server.http.get(
                f"{found['agents_url']}/agent/v1/machines/{machine.id}/desired?version={version}&wait=30",
                headers={"Authorization": f"Bearer {secret('machine', machine.id).decode()}"},
            )
        )
        wakeups = harness.ports.wakeups
        assert isinstance(wakeups, LocalWakeups)
        await until(lambda: f"machine:{machine.id}" in wakeups._listeners)
        answer = await server.http.post(f"{found['url']}/api/v1/server/stop", headers=server.headers)
        assert answer.status_code == 202
        async with asyncio.timeout(3):
            await server.task
            assert (await poll).status_code == 304
        assert "closed" in harness.calls.lanes
        assert not (server.home / "server.json").exists()


@pytest.mark.enable_socket
async def test_a_second_server_on_the_folder_is_refused(settings: Settings, harness: ControlHarness) -> None:
    async with running(settings, harness) as server:
        with pytest.raises(AlreadyRunning):
            async with running(settings, harness, app.Options(True, "n-2")):
                pass
        assert server.found["nonce"] == "n-1"


@pytest.mark.enable_socket
async def test_a_second_server_is_refused_without_the_lock_file_too(
    settings: Settings, harness: ControlHarness
) -> None:
    async with running(settings, harness) as server:
        (server.home / "server.lock").unlink()
        with pytest.raises(AlreadyRunning):
            async with running(settings, harness, app.Options(True, "n-2")):
                pass


@pytest.mark.enable_socket
@pytest.mark.parametrize("name", ["", "server.lock", "crucible.db"])
async def test_a_server_whose_state_is_removed_ends(settings: Settings, harness: ControlHarness, name: str) -> None:
    """It ends with an error and makes nothing anew."""
    home = settings.home.value
    home.mkdir()
    (home / "crucible.db").touch()
    ends: list[int] = []
    async with running(settings, harness, stopping=ends.append) as server:
        (home / name).rename(home.with_name("removed"))
        with pytest.raises(Trouble, match=f"{name} was removed or replaced"):
            await asyncio.wait_for(server.task, DEADLINE)
        assert not (home / name).exists()
        assert ends == [1]
        assert "closed" in harness.calls.lanes


@pytest.mark.enable_socket
async def test_a_server_whose_folder_was_replaced_leaves_the_new_one_alone(
    settings: Settings, harness: ControlHarness
) -> None:
    home = settings.home.value
    async with running(settings, harness) as server:
        home.rename(home.with_name("removed"))
        home.mkdir()
        (home / "server.json").write_text("of another server")
        with pytest.raises(StateFolderLost):
            await asyncio.wait_for(server.task, DEADLINE)
        assert [path.name for path in home.iterdir()] == ["server.json"]


@pytest.mark.enable_socket
async def test_the_next_run_has_the_same_ports_and_secrets(
    settings: Settings, harness: ControlHarness, tmp_path: Path
) -> None:
    async with running(settings, harness) as server:
        first, headers = server.found, server.headers
    async with running(settings, await make_harness(tmp_path), app.Options(True, "n-2")) as server:
        second = server.found
        assert (second["url"], second["agents_url"]) == (first["url"], first["agents_url"])
        assert server.headers == headers


@pytest.mark.enable_socket
async def test_a_named_port_that_is_taken_is_an_error(settings: Settings, harness: ControlHarness) -> None:
    with bind("127.0.0.1", None) as taken, pytest.raises(PortInUse):
        async with running(settings, harness, app.Options(True, "n", port=port_of(taken))):
            pass
    assert not (settings.home.value / "server.json").exists()
    assert "closed" not in harness.calls.lanes, "nothing was started"


@pytest.mark.enable_socket
async def test_a_control_plane_that_does_not_start_leaves_nothing_behind(
    settings: Settings, harness: ControlHarness
) -> None:
    damaged = BrokenDb(Trouble("The database is damaged."))
    broken = join(
        replace(harness.ports, db=damaged), harness.clock, harness.calls, harness.backends, harness.deployment.scratch
    )
    with pytest.raises(Trouble, match="damaged"):
        async with running(settings, broken):
            pass
    assert "closed" in harness.calls.lanes
    assert not (settings.home.value / "server.json").exists()
    async with running(settings, harness):
        pass


@pytest.mark.enable_socket
async def test_a_server_of_its_own_keeps_its_log_in_the_folder(settings: Settings, harness: ControlHarness) -> None:
    async with running(settings, harness, app.Options(False, "n-1")) as server:
        token = (server.home / "token").read_text()
    lines = [json.loads(line) for line in StateFolder(server.home).log.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["ready", "stopped"]
    assert token not in StateFolder(server.home).log.read_text()


@pytest.mark.enable_socket
@pytest.mark.parametrize("left", [None, b""])
async def test_a_fresh_database_beside_a_full_store_is_refused(settings: Settings, left: bytes | None) -> None:
    home = open_state_folder(settings.home.value)
    home.write_agents_url("http://127.0.0.1:1", "http://127.0.0.1:1", "unix:/socket")
    await app.build_control(home, settings).store_error()
    open_store(str(home.store)).put("jobs/job-1/x", b"of a job")
    home.database.unlink()
    if left is not None:
        home.database.write_bytes(left)
    for _ in range(2):
        with pytest.raises(DatabaseMissing) as refused:
            app.build_control(home, settings)
    assert "crucible db restore" in refused.value.fix
    home.store.rename(home.path / "old")
    app.build_control(home, settings)


@pytest.mark.enable_socket
async def test_an_empty_postgresql_database_beside_a_full_store_is_refused(
    settings: Settings, postgres_url: str
) -> None:
    on_postgres = replace(settings, database=Setting(DatabaseUrl(postgres_url)))
    home = open_state_folder(settings.home.value)
    home.write_agents_url("http://127.0.0.1:1", "http://127.0.0.1:1", "unix:/socket")
    open_store(str(home.store)).put("jobs/job-1/x", b"of a job")
    with pytest.raises(DatabaseMissing) as refused:
        app.build_control(home, on_postgres)
    assert "CRUCIBLE_STORE" in refused.value.fix
    assert postgres_url not in str(refused.value)
    home.store.rename(home.path / "old")
    app.build_control(home, on_postgres)
    open_store(str(home.store)).put("jobs/job-1/x", b"of a job")
    app.build_control(home, on_postgres)


@pytest.mark.enable_socket
async def test_a_store_that_holds_only_what_is_not_ours_is_no_loss(settings: Settings) -> None:
    home = open_state_folder(settings.home.value)
    home.write_agents_url("http://127.0.0.1:1", "http://127.0.0.1:1", "unix:/socket")
    store = open_store(str(home.store))
    for key in ("datasets/train.csv", "jobs-of-others/x", "readme"):
        store.put(key, b"not ours")
    app.build_control(home, settings)


async def test_an_address_beyond_this_computer_is_refused(settings: Settings) -> None:
    with pytest.raises(RefusedByPolicy):
        await app.serve(app.Options(host="0.0.0.0"), settings, app.build_control)
    assert not settings.home.value.exists()


def test_the_command_line() -> None:
    options = parse(["serve", "--embedded", "--nonce", "n", "--port", "81", "--agents-port", "82"])
    assert options == app.Options(True, "n", "127.0.0.1", 81, 82)


def test_a_nonce_is_made_when_none_is_given() -> None:
    assert parse(["serve"]).nonce != parse(["serve"]).nonce


@pytest.mark.parametrize(
    "arguments", [[], ["dance"], ["serve", "--port", "0"], ["serve", "--port", "x"], ["serve", "y"]]
)
def test_a_wrong_command_line_is_bad_input(arguments: list[str]) -> None:
    with pytest.raises(BadInput):
        parse(arguments)


def test_the_last_line_is_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[int] = []
    assert app.main(["serve", "--port", "99999"], heard.append) == 2
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert last["error"].keys() == {"code", "what", "why", "fix"}
    assert last["error"]["code"] == "bad_input"
    assert heard == [2]


def test_an_unexpected_error_is_told_without_the_values_of_variables(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(flags: object) -> Settings:
        password = "hunter2"
        raise RuntimeError(f"after {len(password)} letters")

    monkeypatch.setattr("crucible.app.command.load_settings", fails)
    assert app.main(["serve"]) == 1
    captured = capfd.readouterr()
    assert json.loads(captured.err.splitlines()[-1])["error"]["why"] == "RuntimeError: after 7 letters"
    assert "Traceback" in captured.err
    assert "hunter2" not in captured.out + captured.err


ISSUER = {"CRUCIBLE_OIDC_ISSUER": "https://id.example.org", "CRUCIBLE_OIDC_CLIENT_ID": "crucible"}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"CRUCIBLE_OIDC_ISSUER": "https://id.example.org"}, "must be set together"),
        ({"CRUCIBLE_OIDC_CLIENT_ID": "crucible"}, "must be set together"),
        ({**ISSUER, "CRUCIBLE_OIDC_ISSUER": "http://id.example.org"}, "not encrypted"),
        ({**ISSUER, "CRUCIBLE_OIDC_CREATE_USERS": "vision"}, "only with a list of e-mail domains"),
    ],
)
def test_half_a_provider_is_refused(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    settings = load_settings(environ=environ, folder=tmp_path, user_config=tmp_path / "none.toml")
    with pytest.raises(BadInput, match=said) as caught:
        app.build_control(StateFolder(tmp_path), settings)
    assert "oidc_" in caught.value.fix
