"""`crucible run`: from nothing to a job's own exit code, for every kind of payload."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.support import make_wheel
from tests.e2e.terminal import Terminal
from tests.harness import interrupt, until

TRAIN = """\
import argparse, os
import helper
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
for epoch in range(parser.parse_args().epochs):
    print(f"epoch {epoch + 1}/3 loss={helper.loss(epoch):.2f}")
with open(os.environ["CRUCIBLE_OUTPUT_DIR"] + "/model.txt", "w") as model:
    model.write("weights")
"""
HELPER = "def loss(epoch):\n    return 1 / (epoch + 1)\n"
HELD = """\
import os, time
print("begun")
while not os.path.exists({!r}):
    time.sleep(0.02)
print("end")
"""
EPOCHS = "epoch 1/3 loss=1.00\nepoch 2/3 loss=0.50\nepoch 3/3 loss=0.33\n"


def test_the_first_command_of_a_new_user(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.write(train=TRAIN, helper=HELPER)
        assert not terminal.home.exists()
        done = terminal.run("run", "train.py", "--", "--epochs", "3")
        assert (done.returncode, done.stdout) == (0, EPOCHS), done.stderr
        assert "Running on local (this computer" in done.stderr
        assert "because" in done.stderr
        assert "completed" in done.stderr
        assert "1 artifact" in done.stderr
        assert terminal.is_up()
        terminal.ok("down")
        assert not terminal.is_up()
        (job,) = json.loads(terminal.ok("jobs", "--json"))["items"]
        assert job["status"] == "completed"


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("no-such-program", 127)],
)
def test_the_exit_code_is_the_jobs_own(terminal: Terminal, command: str, code: int) -> None:
    done = terminal.run("run", "--shell", command)
    assert done.returncode == code, done.stderr
    assert ("failed" in done.stderr) == bool(code)


def test_detached_it_prints_one_object(terminal: Terminal) -> None:
    done = terminal.run("run", "-c", "print('later')", "--detach", "--json", "--name", "aside")
    found = json.loads(done.stdout)
    assert (done.returncode, found["name"]) == (0, "aside")
    assert terminal.crucible.wait(found["id"])["status"] == "completed"
    plain = terminal.ok("run", "-c", "print('later')", "--detach").split()
    assert terminal.crucible.wait(plain[0])["status"] == "completed"


def test_followed_as_json_every_line_is_an_object(terminal: Terminal) -> None:
    lines = [json.loads(line) for line in terminal.ok("run", "-c", "print('x')", "--json").splitlines()]
    assert "".join(line.get("text", "") for line in lines) == "x\n"
    assert lines[-1]["status"] == "completed"


def test_an_interrupt_detaches_and_the_job_goes_on(terminal: Terminal) -> None:
    gate = terminal.folder / "gate"
    command = terminal.begin("run", "-c", held_by(gate))
    assert command.stdout is not None
    assert command.stdout.readline() == "begun\n"
    interrupt(command)
    _, said = command.communicate(timeout=20)
    assert command.returncode == 130
    assert "Detached; the job continues." in said
    (job,) = terminal.json("status")["items"]
    assert job["phase"] == "running"
    assert job["short"] in said
    gate.touch()
    assert terminal.crucible.wait(job["id"])["status"] == "completed"
    assert terminal.crucible.log(job["id"]) == b"begun\nend\n"


def test_the_server_may_die_while_a_job_is_followed(terminal: Terminal) -> None:
    gate = terminal.folder / "gate-of-the-dead"
    command = terminal.begin("run", "-c", held_by(gate))
    assert command.stdout is not None
    assert command.stdout.readline() == "begun\n"
    pid = terminal.crucible.discovery["pid"]
    subprocess.run(["kill", "-9", str(pid)], check=True)
    gate.touch()
    out, said = command.communicate(timeout=60)
    assert (command.returncode, out) == (0, "end\n"), said


class TestPayloads:
    def test_a_script_brings_what_it_imports(self, terminal: Terminal) -> None:
        terminal.write(train=TRAIN, helper=HELPER, unrelated="1 / 0")
        assert terminal.ok("run", "train.py", "--", "--epochs", "3") == EPOCHS

    def test_a_directory(self, terminal: Terminal) -> None:
        terminal.write(
            model__main="import sys, parts.one; print(parts.one.NAME, sys.argv[1:])",
            model__parts__one="NAME = 'one'",
        )
        assert terminal.ok("run", "model", "--", "-x", "--json") == "one ['-x', '--json']\n"
        terminal.write(model__other="print('the other')")
        assert terminal.ok("run", "model", "--entry", "other.py") == "the other\n"

    def test_a_git_address_at_a_ref(self, terminal: Terminal) -> None:
        repo = terminal.write(repo__main="print('old')").parent

        def git(*words: str) -> str:
            who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
            done = subprocess.run(["git", *who, *words], cwd=repo, check=True, capture_output=True, text=True)
            return done.stdout.strip()

        git("init", "-q", "-b", "main")
        git("add", ".")
        git("commit", "-q", "-m", "old")
        git("tag", "v1")
        commit = git("rev-parse", "HEAD")
        (repo / "main.py").write_text("print('new')")
        git("commit", "-q", "-a", "-m", "new")
        assert terminal.ok("run", repo.as_uri()) == "new\n"
        assert terminal.ok("run", repo.as_uri(), "--ref", "v1") == "old\n"
        source = terminal.json("status", "last")["source"]
        assert (source["kind"], source["commit"]) == ("git", commit)

    def test_a_notebook(self, terminal: Terminal) -> None:
        cells = [
            {"cell_type": "markdown", "metadata": {}, "source": "# Not code"},
            _cell("import helper\nx = helper.loss(1)"),
            _cell("%matplotlib inline\nprint(x)"),
        ]
        notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
        terminal.write(helper=HELPER)
        (terminal.folder / "look.ipynb").write_text(json.dumps(notebook))
        assert terminal.ok("run", "look.ipynb") == "0.5\n"

    def test_code_and_standard_input(self, terminal: Terminal) -> None:
        assert terminal.ok("run", "-c", "import sys; print(sys.argv[1:])", "--", "a", "b") == "['a', 'b']\n"
        assert terminal.ok("run", "-", input="print('piped')") == "piped\n"

    def test_a_job_file(self, terminal: Terminal) -> None:
        terminal.write(train=TRAIN, helper=HELPER)
        assert "job.yaml" in terminal.run("init").stderr
        again = terminal.run("init")
        assert (again.returncode, "--force" in again.stderr) == (5, True)
        assert terminal.ok("run", "job.yaml", "--", "--epochs", "3") == EPOCHS
        assert terminal.json("status", "last")["source"]["kind"] == "script"
        (terminal.folder / "sized.toml").write_text(
            'shell = "echo $MODE"\ntier = "CPU_SMALL"\nname = "sized"\n[env]\nMODE = "fast"\n'
        )
        assert terminal.ok("run", "sized.toml", "--memory", "64M") == "fast\n"
        job = terminal.json("status", "last")
        assert (job["name"], job["tier"], job["resources"]["memory_bytes"]) == (
            "sized",
            "CPU_SMALL",
            64 << 20,
        )

    def test_in_place_with_data_and_variables(self, terminal: Terminal) -> None:
        (terminal.folder / "data.txt").write_text("42")
        terminal.write(
            here="import os; open('made-here', 'w').close(); data = os.environ['CRUCIBLE_DATA_DIR']\n"
            "print(open(data + '/data.txt').read(), os.environ['A'], 'B' in os.environ)"
        )
        done = terminal.ok("run", "here.py", "--in-place", "--data", "data.txt", "--env", "A", env={"A": "1", "B": "2"})
        assert done == "42 1 False\n"
        assert (terminal.folder / "made-here").exists()

    def test_requirements_are_installed(self, terminal: Terminal, tmp_path: Path) -> None:
        wheel = make_wheel(tmp_path, "cliwheel", "VALUE = 'built'\n")
        header = f'# /// script\n# dependencies = ["cliwheel @ {wheel.as_uri()}"]\n# ///\n'
        terminal.write(needs=f"{header}import cliwheel\nprint(cliwheel.VALUE)")
        done = terminal.run("run", "needs.py")
        assert (done.returncode, done.stdout) == (0, "built\n")
        assert "[crucible] " in done.stderr

    def test_a_python_that_the_script_requires(self, terminal: Terminal) -> None:
        header = '# /// script\n# requires-python = ">=3.9"\n# ///\n'
        terminal.write(modern=f"{header}print('ran')")
        assert terminal.ok("run", "modern.py") == "ran\n"
        environment = terminal.json("status", "last")["environment"]
        assert environment["python"] == ">=3.9"
        assert environment["interpreter"]

    def test_a_module_beside_the_scripts_folder_is_hinted_at(self, terminal: Terminal) -> None:
        terminal.write(repo2__scripts__go="import mylib.it\nprint(mylib.it.NAME)", repo2__mylib__it="NAME = 'here'")
        done = terminal.run("run", "repo2/scripts/go.py")
        hint = next(line for line in done.stderr.splitlines() if "--entry" in line)
        assert "crucible logs" not in done.stderr
        words = hint.partition("crucible ")[2].split()
        assert words == ["run", "repo2", "--entry", "scripts/go.py", "--env", "PYTHONPATH=."]
        assert terminal.ok(*words) == "here\n"

    def test_a_job_has_no_standard_input(self, terminal: Terminal) -> None:
        done = terminal.run("run", "-c", "input()", input="never read")
        assert done.returncode == 1
        assert "A job has no standard input" in done.stderr


def test_the_module_is_the_command(terminal: Terminal) -> None:
    script = Path(sys.executable).with_name("crucible")
    if not script.exists():
        pytest.skip("the command is not installed beside this Python")
    for arguments in (["--version"], ["--help"], ["run", "missing.py"]):
        command = subprocess.run(
            [str(script), *arguments],
            env=terminal.crucible.env,
            cwd=terminal.folder,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        module = terminal.run(*arguments)
        assert (command.returncode, command.stdout, command.stderr) == (
            module.returncode,
            module.stdout,
            module.stderr,
        )


def held_by(gate: Path) -> str:
    """Code that says it has begun, waits for the gate and says that it ends."""
    return HELD.format(str(gate))


def _cell(source: str) -> dict[str, object]:
    return {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source}


def test_a_job_never_starts_a_server(terminal: Terminal, tmp_path: Path) -> None:
    other = tmp_path / "other"
    env = ["--env", f"OTHER={other}"]
    command = f"CRUCIBLE_HOME=$OTHER {sys.executable} -m crucible jobs"
    done = terminal.run("run", "--shell", command, *env)
    assert done.returncode == 9, done.stderr
    assert not (other / "server.json").exists()
    until(lambda: not terminal.jobs() or terminal.jobs()[0]["status"] == "failed", what="the job's end")
