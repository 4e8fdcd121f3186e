from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import crucible
from crucible.control.agents import agent_file
from crucible.control.agents.agent_file import ROOMS, agent_bytes, build_agent


def names() -> list[str]:
    with zipfile.ZipFile(io.BytesIO(agent_bytes())) as archive:
        return archive.namelist()


def run(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=file.parent, check=False)


def test_the_same_sources_give_the_same_bytes() -> None:
    assert agent_bytes() == agent_bytes()


def test_it_holds_what_runs_elsewhere_and_nothing_else() -> None:
    rooms = {tuple(name.split("/")[:2]) for name in names()}
    assert rooms == {("__main__.py",), ("crucible", "__init__.py"), *(("crucible", room) for room in ROOMS)}
    assert all(name.endswith(".py") for name in names())
    assert names() == sorted(set(names()))


def test_every_source_of_its_rooms_is_in_it() -> None:
    package = Path(crucible.__file__).parent
    expected = {
        f"crucible/{path.relative_to(package).as_posix()}" for room in ROOMS for path in (package / room).rglob("*.py")
    }
    assert expected <= set(names())


def test_it_is_made_once(tmp_path: Path) -> None:
    made_file = build_agent(tmp_path / "agent")
    path = made_file.path
    assert path.read_bytes() == agent_bytes()
    assert made_file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.name == f"agent-{made_file.sha256}.pyz"
    made = path.stat().st_mtime_ns
    assert build_agent(tmp_path / "agent").path == path
    assert path.stat().st_mtime_ns == made
    assert list(path.parent.iterdir()) == [path], "nothing unfinished is left"


def test_the_same_sources_give_the_same_file_in_any_process(tmp_path: Path) -> None:
    code = "import pathlib; from crucible.control.agents.agent_file import build_agent; build_agent(pathlib.Path('.'))"
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        command = [sys.executable, "-c", code]
        subprocess.run(command, cwd=tmp_path / seed, env={"PYTHONHASHSEED": seed}, check=True, timeout=60)
    one, other = ({p.name: p.read_bytes() for p in (tmp_path / seed).iterdir()} for seed in ("1", "2"))
    assert one == other
    assert [*one] == [build_agent(tmp_path / "here").path.name]


def test_another_source_makes_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_agent(tmp_path).path
    monkeypatch.setattr(agent_file, "_MAIN", f"{agent_file._MAIN}# another\n")
    assert build_agent(tmp_path).path != path


@pytest.mark.parametrize("torn", [b"", b"\0" * 1000, agent_bytes()[:-1], agent_bytes() + b"x"])
def test_a_torn_file_of_the_right_name_is_made_again(tmp_path: Path, torn: bytes) -> None:
    path = build_agent(tmp_path).path
    path.write_bytes(torn)
    assert build_agent(tmp_path).path == path
    assert path.read_bytes() == agent_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_older_agents_stay_for_the_hosts_that_run_them(tmp_path: Path) -> None:
    older = tmp_path / f"agent-{'0' * 64}.pyz"
    older.write_bytes(b"still running")
    build_agent(tmp_path)
    assert older.read_bytes() == b"still running"


def test_nothing_unfinished_is_left_where_it_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / build_agent(tmp_path / "elsewhere").path.name / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        build_agent(tmp_path)
    assert not list(tmp_path.glob(".agent-*"))


def test_it_runs_without_anything_installed(tmp_path: Path) -> None:
    done = run(build_agent(tmp_path).path, "version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == crucible.__version__


def test_it_never_imports_another_room(tmp_path: Path) -> None:
    """Whatever is installed beside it, the file's own rooms are the only ones of ours that it loads."""
    file = build_agent(tmp_path).path
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
