from __future__ import annotations

import hashlib
import importlib.util
import io
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from zipimport import zipimporter

import pytest

import crucible
from crucible.control import agentfile
from crucible.control.agentfile import ROOMS, agent_bytes, build_agent
from crucible.wire.bytecode import CODES, PIECE


def names() -> list[str]:
    with zipfile.ZipFile(io.BytesIO(agent_bytes())) as archive:
        return archive.namelist()


def codes(file: Path) -> dict[str, CodeType]:
    """What the piece holds, by the source's name."""
    held: dict[str, object] = {}
    exec(zipimporter(str(file)).get_code(PIECE), held)
    return dict(held[CODES])  # type: ignore[call-overload]


def files_in(folder: Path) -> list[Path]:
    """Without the note of what was made of which sources."""
    return [path for path in folder.iterdir() if not path.name.startswith(".made-of-")]


def run(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=file.parent, check=False)


def test_the_same_sources_give_the_same_bytes() -> None:
    assert agent_bytes() == agent_bytes()


def test_it_holds_what_runs_elsewhere_and_nothing_else() -> None:
    rooms = {tuple(name.split("/")[:2]) for name in names()}
    generated = {(f"{name}.{kind}",) for name in ("__main__", PIECE) for kind in ("py", "pyc")}
    package = {("crucible", name) for name in ("__init__.py", "__init__.pyc", *ROOMS)}
    assert rooms == generated | package
    assert all(name.endswith((".py", ".pyc")) for name in names())
    assert names() == sorted(set(names()))


def test_every_source_of_its_rooms_is_in_it() -> None:
    package = Path(crucible.__file__).parent
    expected = {
        f"crucible/{path.relative_to(package).as_posix()}" for room in ROOMS for path in (package / room).rglob("*.py")
    }
    assert expected <= set(names())


def test_it_is_made_once(tmp_path: Path) -> None:
    path = build_agent(tmp_path / "agent")
    assert path.read_bytes() == agent_bytes()
    assert path.name == f"agent-{hashlib.sha256(path.read_bytes()).hexdigest()}.pyz"
    made = path.stat().st_mtime_ns
    assert build_agent(tmp_path / "agent") == path
    assert path.stat().st_mtime_ns == made
    assert files_in(path.parent) == [path], "nothing unfinished is left"


@pytest.mark.parametrize("optimize", ["", "-O"])
def test_the_same_sources_and_the_same_python_give_the_same_file_in_any_process(tmp_path: Path, optimize: str) -> None:
    code = "import sys, pathlib; from crucible.control.agentfile import build_agent; build_agent(pathlib.Path('.'))"
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        command = [sys.executable, *([optimize] if optimize else []), "-c", code]
        subprocess.run(command, cwd=tmp_path / seed, env={"PYTHONHASHSEED": seed}, check=True, timeout=60)
    one, other = ({p.name: p.read_bytes() for p in (tmp_path / seed).iterdir()} for seed in ("1", "2"))
    assert one == other
    assert len(one) == 2, "the file and the note"
    assert (build_agent(tmp_path / "here").name in one) is (optimize == "")


def test_another_source_or_another_python_makes_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [build_agent(tmp_path)]
    monkeypatch.setattr(importlib.util, "MAGIC_NUMBER", b"new!")
    paths.append(build_agent(tmp_path))
    monkeypatch.setattr(agentfile, "_MAIN", f"{agentfile._MAIN}# another\n")
    paths.append(build_agent(tmp_path))
    assert len(set(paths)) == len(paths)
    assert all(run(path, "version").stdout.strip() == crucible.__version__ for path in paths), "by their sources"


def changed(file: Path, folder: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """The same archive with other contents."""
    made = folder / "changed.pyz"
    with zipfile.ZipFile(file) as given, zipfile.ZipFile(made, "w") as archive:
        for name in given.namelist():
            archive.writestr(name, change(name, given.read(name)))
    return made


def test_what_marshal_cannot_write_goes_as_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later Python has slices among its constants."""
    real = agentfile.dumps

    def refuses(code: CodeType, version: int) -> bytes:
        if code.co_filename.endswith("redaction.py"):
            raise ValueError("unmarshallable object")
        return real(code, version)

    monkeypatch.setattr(agentfile, "dumps", refuses)
    file = build_agent(tmp_path)
    assert "crucible/agent/redaction.py" in names()
    assert "crucible/agent/redaction.py" not in codes(file)
    assert "crucible/agent/host.py" in codes(file)
    assert run(file, "version").returncode == 0


def test_without_asserts_no_bytecode_goes_along(tmp_path: Path) -> None:
    code = (
        "import io, sys, zipfile; from crucible.control.agentfile import agent_bytes;"
        "names = zipfile.ZipFile(io.BytesIO(agent_bytes())).namelist(); sys.exit(any(n.endswith('c') for n in names))"
    )
    subprocess.run([sys.executable, "-O", "-c", code], check=True, timeout=60)


def test_bytecode_belongs_to_its_source(tmp_path: Path) -> None:
    file = build_agent(tmp_path)
    with zipfile.ZipFile(file) as archive:
        sources = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
        beside = {name[:-1] for name in archive.namelist() if name.endswith(".pyc")}
    assert not {*codes(file)} & beside
    assert {*codes(file), *beside} == {name for name in sources if not name.startswith("crucible/inside/")}
    for name, code in codes(file).items():
        assert code == compile(sources[name], name, "exec", dont_inherit=True), name


def test_a_python_that_is_told_to_compare_bytecode_with_its_source_finds_no_fault(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "--check-hash-based-pycs", "always", str(build_agent(tmp_path)), "version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, crucible.__version__), done.stderr


def test_a_host_loads_nothing_from_source(tmp_path: Path) -> None:
    def unreadable(name: str, data: bytes) -> bytes:
        return b"raise SystemExit('from its source')" if name.endswith(".py") else data

    done = run(changed(build_agent(tmp_path), tmp_path, unreadable), "version")
    assert (done.returncode, done.stdout.strip()) == (0, crucible.__version__), done.stderr


def test_what_goes_wrong_is_told_with_its_lines(tmp_path: Path) -> None:
    code = (
        f"import logging, sys; sys.path.insert(0, {str(build_agent(tmp_path))!r})\n"
        "from crucible.wire.messages import derive_secret\n"
        "try: derive_secret(None, 'a', 'b')\n"
        "except TypeError: logging.exception('it broke')"
    )
    command = [sys.executable, "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert 'File "agent.pyz/crucible/wire/messages.py", line' in done.stderr
    assert "return hmac.new(" in done.stderr, "the line itself"
    assert str(Path(crucible.__file__).parent) not in done.stderr


@pytest.mark.parametrize("torn", [b"", b"\0" * 1000, agent_bytes()[:-1], agent_bytes() + b"x"])
def test_a_torn_file_of_the_right_name_is_made_again(tmp_path: Path, torn: bytes) -> None:
    path = build_agent(tmp_path)
    path.write_bytes(torn)
    assert build_agent(tmp_path) == path
    assert path.read_bytes() == agent_bytes()
    assert files_in(tmp_path) == [path]


@pytest.mark.parametrize("said", [b"", b"\0", b"\xff", b"agent-0.pyz", b"../agent", b"/", "ü".encode()])
def test_a_note_that_leads_nowhere_does_no_harm(tmp_path: Path, said: bytes) -> None:
    path = build_agent(tmp_path)
    (note,) = tmp_path.glob(".made-of-*")
    note.write_bytes(said)
    assert build_agent(tmp_path) == path
    assert note.read_text() == path.name


def test_older_agents_stay_for_the_hosts_that_run_them(tmp_path: Path) -> None:
    older = tmp_path / f"agent-{'0' * 64}.pyz"
    older.write_bytes(b"still running")
    build_agent(tmp_path)
    assert older.read_bytes() == b"still running"


def test_nothing_unfinished_is_left_where_it_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / build_agent(tmp_path / "elsewhere").name / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        build_agent(tmp_path)
    assert not list(tmp_path.glob(".agent-*"))


def test_it_runs_without_anything_installed(tmp_path: Path) -> None:
    done = run(build_agent(tmp_path), "version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == crucible.__version__


def test_it_never_imports_another_room(tmp_path: Path) -> None:
    """Whatever is installed beside it, the file's own rooms are the only ones of ours that it loads."""
    file = build_agent(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(file)!r});"
        "import crucible.agent.__main__, crucible.inside, crucible;"
        "ours = {name.split('.')[1] for name in sys.modules if name.startswith('crucible.')};"
        "print(*ours, crucible.__file__)"
    )
    command = [sys.executable, "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    *loaded, origin = done.stdout.split()
    assert set(loaded) <= set(ROOMS)
    assert origin.startswith(str(file))
