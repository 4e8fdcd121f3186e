"""An upgrade with running jobs: a newer server takes over, the agents of the older one go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.harness import Deployment, shell, until

import crucible

pytestmark = [pytest.mark.enable_socket, pytest.mark.timeout(240)]

NEWER = "9.7.0"
SMALL = {"resources": {"cpus": 0.5, "memory_bytes": 256 * 1024**2}}
"""Two of these run beside each other anywhere."""


def newer_tree(folder: Path) -> Path:
    """This Crucible as a later one could be: another version, and documents with fields nobody here knows."""
    sources = Path(crucible.__file__).parent
    tree = folder / "newer"
    shutil.copytree(sources, tree / "crucible", ignore=shutil.ignore_patterns("__pycache__"))
    change(tree / "crucible/__init__.py", f'__version__ = "{crucible.__version__}"', f'__version__ = "{NEWER}"')
    change(
        tree / "crucible/wire/documents/desired.py",
        'return json.dumps({"v": VERSION, **asdict(desired)}, separators=(",", ":")).encode()',
        """doc = {"v": VERSION, **asdict(desired), "novelty": {"deep": [1]}}
    for assignment in doc["assignments"]:
        assignment.update(novelty=1)
        assignment["limits"]["novelty"] = assignment["environment"]["novelty"] = "unheard of"
    return json.dumps(doc).encode()""",
    )
    return tree


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path} has changed; so must this test"
    path.write_text(text.replace(old, new))


def test_a_running_job_outlives_the_upgrade_and_the_old_agent_serves_the_new_server(tmp_path: Path) -> None:
    tree = newer_tree(tmp_path)
    flag = tmp_path / "flag"
    with Deployment(tmp_path) as deployment:
        first = deployment.submit(shell(f"echo before; while [ ! -e {flag} ]; do sleep 0.1; done; echo after", **SMALL))
        deployment.phase(first, "running", seconds=60)
        hosts = deployment.hosts()
        deployment.kill()
        deployment.start(seconds=60, PYTHONPATH=str(tree))
        assert deployment.get("/api/v1/server")["version"] == NEWER

        second = deployment.submit(shell("echo on the old agent", **SMALL))
        view = deployment.wait(second, 90)
        assert (view["status"], deployment.log(second)) == ("completed", b"on the old agent\n")
        flag.touch()
        view = deployment.wait(first, 90)
        assert (view["status"], view["attempt"]) == ("completed", 1)
        assert deployment.log(first) == b"before\nafter\n"
        assert deployment.hosts() == hosts, "the same host did all of it"
        said = [e["data"]["text"] for e in deployment.events(second) if e["type"] == "note"]
        assert any(crucible.__version__ in text and NEWER in text for text in said)


def test_a_command_of_another_version_says_so_and_works(tmp_path: Path) -> None:
    """The server is named, so it is nobody's to restart."""
    tree = newer_tree(tmp_path)
    with Deployment(tmp_path, env={"PYTHONPATH": str(tree)}) as deployment:
        job = deployment.submit(shell("true"))
        deployment.wait(job, 90)
        ours = {k: v for k, v in deployment.env.items() if k != "PYTHONPATH"}
        deployment.env = {**ours, "CRUCIBLE_SERVER": deployment.discovery["url"], "CRUCIBLE_TOKEN": deployment.token}
        done = deployment.cli("status", job)
        assert done.returncode == 0, done.stderr
        assert f"The server is version {NEWER}" in done.stderr
        assert done.stderr.count(NEWER + ", this command") == 1
        checked = deployment.cli("doctor")
        assert NEWER in checked.stdout
        deployment.env = {**deployment.env, "PYTHONPATH": str(tree)}
        until(lambda: NEWER not in deployment.cli("status", job).stderr, 30, "one version to say nothing")
