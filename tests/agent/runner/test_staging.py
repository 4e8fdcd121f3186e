from __future__ import annotations

import contextlib
import io
import random
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.agent.agents_server import ALWAYS, AgentsServer
from tests.control.harness import job_spec
from tests.faults.disks import small_disk

import crucible
from crucible.agent.link.channel import HttpChannel
from crucible.agent.link.connection import ServerAddress
from crucible.agent.process.environment import job_environment
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.staging import Stager, start_folder
from crucible.agent.runner.staging_context import StagingAborted, StagingContext, StagingError
from crucible.wire.documents.desired import Assignment, DataItem, Limits
from crucible.wire.files.archive import Entry, pack
from crucible.wire.shim import write_shim

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def control(control: AgentsServer) -> AgentsServer:
    control.run(job_spec(), "a")
    return control


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    folder = AttemptFolder.for_attempt(tmp_path / "attempts", "a", 0)
    folder.create()
    folder.make_job_folders()
    return folder


@pytest.fixture
def stager(control: AgentsServer, tmp_path: Path) -> Stager:
    channel = HttpChannel(ServerAddress(file=control.url_file), "a", 0, control.secret("a"))
    return Stager(channel, quiet(), tmp_path / "cache")


def quiet() -> StagingContext:
    return StagingContext(lambda what: None, lambda line: None, lambda text: None)


def job(**changes: object) -> Assignment:
    return Assignment(attempt="a", job="j", rank=0, secret="s", command=("x",), **changes)  # type: ignore[arg-type]


def bundle(control: AgentsServer, **files: bytes) -> str:
    raw = io.BytesIO()
    pack([Entry.of_bytes(f"{name}.py", data) for name, data in files.items()], raw)
    sha256 = control.add_bundle(raw.getvalue())
    control.assign("a", bundle=sha256)
    return sha256


def downloads(control: AgentsServer) -> int:
    return sum("/bundles/" in path for _, path in control.requests)


def test_a_bundle_is_unpacked_and_kept_for_others(
    stager: Stager, control: AgentsServer, folder: AttemptFolder, tmp_path: Path
) -> None:
    sha256 = bundle(control, main=b"print(1)")
    assert stager.code(job(bundle=sha256), folder) == folder.work
    assert (folder.work / "main.py").read_bytes() == b"print(1)"
    other = AttemptFolder.for_attempt(tmp_path / "attempts", "b", 0)
    other.create()
    stager.code(job(bundle=sha256), other)
    assert downloads(control) == 1


def test_a_download_goes_on_where_it_broke_off(stager: Stager, control: AgentsServer, folder: AttemptFolder) -> None:
    sha256 = bundle(control, main=random.Random(1).randbytes(300_000))
    control.faults.cut("*/bundles/*", times=ALWAYS, after=100_000)
    stager.code(job(bundle=sha256), folder)
    assert (folder.work / "main.py").stat().st_size == 300_000
    assert downloads(control) in (4, 5)


def test_a_damaged_copy_is_fetched_again(
    stager: Stager, control: AgentsServer, folder: AttemptFolder, tmp_path: Path
) -> None:
    sha256 = bundle(control, main=b"print(1)")
    assert stager.cache is not None
    stager.cache.mkdir()
    (stager.cache / f"{sha256}.tar.gz").write_bytes(b"rubbish")
    (stager.cache / f"{sha256}.tar.gz.part").write_bytes(b"also rubbish")
    stager.code(job(bundle=sha256), folder)
    assert (folder.work / "main.py").exists()


def test_a_bundle_that_is_not_there_is_said(stager: Stager, folder: AttemptFolder) -> None:
    with pytest.raises(StagingError, match="404"):
        stager.code(job(bundle="0" * 64), folder)


def test_a_stop_ends_the_waiting_for_a_server(stager: Stager, control: AgentsServer, folder: AttemptFolder) -> None:
    sha256 = bundle(control, main=b"")
    control.down()
    threading.Timer(0.2, stager.work.aborted.set).start()
    with pytest.raises(StagingAborted):
        stager.code(job(bundle=sha256), folder)


def test_code_that_the_disk_has_no_room_for_is_said(stager: Stager, control: AgentsServer, tmp_path: Path) -> None:
    sha256 = bundle(control, main=bytes(40 * 1024**2))
    with small_disk(tmp_path / "small", 32 * 1024**2) as disk:
        folder = AttemptFolder.for_attempt(disk.path, "a", 0)
        folder.create()
        with pytest.raises(StagingError, match=r"it needs 40\.0 MiB more, and the disk of .* have to stay free"):
            stager.code(job(bundle=sha256), folder)
        assert disk.free > 31 * 1024**2


def test_in_place(stager: Stager, folder: AttemptFolder, tmp_path: Path) -> None:
    assert stager.code(job(in_place=str(tmp_path)), folder) == tmp_path
    with pytest.raises(StagingError, match="--in-place"):
        stager.code(job(in_place="/no/such/folder"), folder)


def test_the_folder_to_start_in_is_inside_the_code(tmp_path: Path) -> None:
    (tmp_path / "code" / "experiments").mkdir(parents=True)
    (tmp_path / "code" / "file").write_text("")
    (tmp_path / "code" / "out").symlink_to(tmp_path)
    code = tmp_path / "code"
    assert start_folder(code, None) == code
    assert start_folder(code, "experiments") == code / "experiments"
    assert start_folder(code, "new/inner").is_dir()
    for name in ("../code", "/etc", "out", "file"):
        with pytest.raises(StagingError, match="cannot start in"):
            start_folder(code, name)


def test_local_data_is_linked(stager: Stager, folder: AttemptFolder, tmp_path: Path) -> None:
    source = tmp_path / "a b"
    source.mkdir()
    items = (DataItem("one", str(source)), DataItem("deep/two", source.as_uri()))
    stager.data(items, folder)
    assert (folder.data / "one").resolve() == source
    assert (folder.data / "deep/two").resolve() == source


@pytest.fixture
def files(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a web server with the file `set.bin`."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "set.bin").write_bytes(b"x" * 500_000)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_data_over_http_is_downloaded(stager: Stager, files: str, folder: AttemptFolder) -> None:
    stager.data((DataItem("set.bin", f"{files}/set.bin"),), folder)
    assert (folder.data / "set.bin").read_bytes() == b"x" * 500_000
    with pytest.raises(StagingError, match="404"):
        stager.data((DataItem("other", f"{files}/other"),), folder)


class Endless(BaseHTTPRequestHandler):
    """A web server that does not say how much it sends."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(64):
                self.wfile.write(bytes(1024**2))


def test_data_of_unknown_size_does_not_fill_the_disk(stager: Stager, tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "small", 32 * 1024**2) as disk,
        ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server,
    ):
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        folder = AttemptFolder.for_attempt(disk.path, "a", 0)
        folder.create()
        folder.make_job_folders()
        item = DataItem("set.bin", f"http://127.0.0.1:{server.server_address[1]}/set.bin")
        with pytest.raises(StagingError, match=r"'set\.bin' cannot be stored: it needs"):
            stager.data((item,), folder)
        assert disk.free > 1024**2
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("x", "/no/such/file", "not on this machine"),
        ("x", "relative", "not on this machine"),
        ("x", "s3://bucket/key", "s3://"),
        ("../x", "/tmp", "'..'"),
    ],
)
def test_bad_inputs_are_said(stager: Stager, folder: AttemptFolder, name: str, source: str, said: str) -> None:
    with pytest.raises(StagingError, match=said):
        stager.data((DataItem(name, source),), folder)


# What the process sees


def test_only_the_base_and_named_variables_pass(folder: AttemptFolder) -> None:
    host = {"PATH": "/usr/bin", "HOME": "/h", "SECRET": "x", "LANG": "C"}
    env = job_environment(job(env={"A": "1", "HOME": "/mine"}), folder, "/usr/bin/python3", host, False)
    assert (env["A"], env["HOME"], env["LANG"], env["PATH"]) == ("1", "/mine", "C", "/usr/bin")
    assert "SECRET" not in env
    assert env["PYTHONUNBUFFERED"] == "1"
    assert env["CRUCIBLE_OUTPUT_DIR"] == str(folder.outputs)
    assert "CUDA_VISIBLE_DEVICES" not in env
    assert "CRUCIBLE_RESUME_FROM" not in env


def test_gpus_are_those_that_were_given(folder: AttemptFolder) -> None:
    def visible(limits: Limits, has_gpus: bool) -> str | None:
        env = job_environment(job(limits=limits), folder, "/usr/bin/python3", {}, has_gpus)
        return env.get("CUDA_VISIBLE_DEVICES")

    assert visible(Limits(gpus=(1, 3)), True) == "1,3"
    assert visible(Limits(), True) == ""
    assert visible(Limits(), False) is None


@pytest.mark.parametrize(
    ("cpus", "machine", "threads"),
    [(2.0, 8, "2"), (2.5, 8, "3"), (0.25, 8, "1"), (8.0, 8, None), (None, 8, None), (2.0, None, None)],
)
def test_threads_are_as_many_as_the_cpus_that_were_given(
    folder: AttemptFolder, cpus: float | None, machine: int | None, threads: str | None
) -> None:
    asked = job(limits=Limits(cpus=cpus), env={"MKL_NUM_THREADS": "7"})
    env = job_environment(asked, folder, "/usr/bin/python3", {}, False, machine)
    assert env["MKL_NUM_THREADS"] == "7"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_MAX_THREADS"):
        assert env.get(name) == threads


def test_programs_of_an_environment_come_first(folder: AttemptFolder, tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    python = str(tmp_path / "env" / "bin" / "python")
    env = job_environment(job(), folder, python, {"PATH": "/usr/bin"}, False)
    assert env["PATH"] == f"{tmp_path}/env/bin:/usr/bin"
    assert env["VIRTUAL_ENV"] == str(tmp_path / "env")


# import crucible


def run(shim: Path, code: str, *paths: Path, cwd: Path | None = None) -> str:
    """Run code like a job, with only `paths` and then the shim importable."""
    env = {"PYTHONPATH": ":".join(map(str, [*paths, shim]))}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, timeout=30, cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_job_can_import_what_the_agent_brought(tmp_path: Path) -> None:
    write_shim(tmp_path / "shim")
    code = "import crucible as c; c.report(1, loss=0.5); print(c.should_stop(), c.inside.__name__)"
    assert run(tmp_path / "shim", code) == "step 1 loss=0.5\nFalse crucible.inside"
    assert run(tmp_path / "shim", "from crucible import checkpoint; print(checkpoint.__name__)")
    code = "import crucible\ntry: crucible.nothing\nexcept AttributeError: print('no')"
    assert run(tmp_path / "shim", code) == "no"


@pytest.mark.parametrize("later", [True, False])
def test_what_the_user_installed_wins(tmp_path: Path, later: bool) -> None:
    write_shim(tmp_path / "shim")
    own = tmp_path / "own" / "crucible"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("from crucible.part import name")
    (own / "part.py").write_text("name = 'mine'")
    code = "import crucible, crucible.part; print(crucible.name, crucible.__file__)"
    if later:
        code = f"import sys; sys.path.append({str(own.parent)!r}); {code}"
    paths = [] if later else [own.parent]
    assert run(tmp_path / "shim", code, *paths) == f"mine {own}/__init__.py"


def test_a_folder_that_happens_to_have_the_name_does_not_count(tmp_path: Path) -> None:
    write_shim(tmp_path / "shim")
    (tmp_path / "here" / "crucible").mkdir(parents=True)
    code = "import crucible; print(crucible.should_stop())"
    assert run(tmp_path / "shim", code, cwd=tmp_path / "here") == "False"


def test_the_shim_comes_out_of_the_agents_file_too(tmp_path: Path) -> None:
    package = Path(crucible.__file__).parent
    rooms = [path for room in ("wire", "inside", "agent") for path in (package / room).rglob("*.py")]
    archive = tmp_path / "agent.pyz"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in [package / "__init__.py", *rooms]:
            packed.write(path, f"crucible/{path.relative_to(package)}")
    code = "import sys, pathlib; from crucible.wire import shim; shim.write_shim(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-S", "-c", code, str(tmp_path / "shim")]
    subprocess.run(command, env={"PYTHONPATH": str(archive)}, check=True, timeout=30, cwd=tmp_path)
    assert run(tmp_path / "shim", "import crucible; print(crucible.should_stop())") == "False"
