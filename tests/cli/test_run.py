from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import JOB, FakeServer, completed, failed, job_view

pytestmark = pytest.mark.enable_socket


@pytest.fixture(autouse=True)
def a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)


def test_output_goes_to_stdout_and_our_words_to_stderr(cli: Cli, server: FakeServer) -> None:
    server.log, server.artifacts = b"epoch 1\nepoch 2\n", {"model.bin": b"x" * 2048}
    ran = cli("run", "train.py", "--", "--epochs", "3")
    assert ran.code == 0
    assert ran.out == "epoch 1\nepoch 2\n"
    assert "Running on local (this computer, 2 CPUs, 24 GiB, free): nothing else was asked for" in ran.err
    assert "job-abc123 completed after 42s, free" in ran.err
    assert "1 artifact (2 KiB): crucible download job-abc123" in ran.err
    assert server.specs[0]["command"] == ["{python}", "train.py", "--epochs", "3"]


def test_it_returns_the_jobs_own_code_and_says_why(cli: Cli, server: FakeServer) -> None:
    server.ends_as = failed(code=3)
    ran = cli("run", "train.py")
    assert ran.code == 3
    assert "failed after 42s (exit code 3)" in ran.err
    assert "The code failed.\n  Look at the last output." in ran.err


def test_the_output_that_was_just_seen_is_not_advertised(cli: Cli, server: FakeServer) -> None:
    advice = "Its last lines say why: crucible logs job-abc123"
    reason = {"code": "exit_code", "message": "The program ended with an error.", "advice": advice}
    server.ends_as = failed(code=1, reason=reason)
    server.log = b"Traceback\nModuleNotFoundError: No module named 'torch'\n"
    ran = cli("run", "train.py")
    assert "The program ended with an error." in ran.err
    assert "crucible logs" not in ran.err
    assert "no module torch" in ran.err


def test_crucibles_own_lines_stay_out_of_standard_output(cli: Cli, server: FakeServer) -> None:
    server.log = b"[crucible] building the environment\nhello\n"
    ran = cli("run", "train.py")
    assert ran.out == "hello\n"
    assert "[crucible] building the environment\n" in ran.err
    ran = cli("run", "train.py", "--quiet")
    assert (ran.out, ran.err) == ("hello\n", "")


def test_notes_come_with_the_submission(cli: Cli, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    ran = cli("run", "train.py", "-d")
    assert ran.code == 0
    assert "pyproject.toml is not valid TOML, so its dependencies are not known" in ran.err


def test_a_queued_job_does_not_run_yet(cli: Cli, server: FakeServer) -> None:
    def waits(why: str) -> dict[str, object]:
        return {"stream": "job", "job": job_view(status="queued", phase="queued", started_at=None, waiting=why)}

    again = "tries again in {} s (after: exit code 1)"
    frames = [waits("behind 1 other job"), waits(again.format(45)), waits(again.format(44))]
    server.acts = [([*frames, {"stream": "job", "job": completed()}], 1000)]
    err = cli("run", "train.py").err
    assert "Will run on local (this computer" in err
    assert "; waiting: behind 1 other job" in err
    assert err.count("tries again in") == 1
    assert err.index("Will run on") < err.index("Running on")


def test_a_job_ended_by_a_signal_returns_128_and_its_number(cli: Cli, server: FakeServer) -> None:
    server.ends_as = failed(exit_code=None, signal=9)
    assert cli("run", "train.py").code == 137


def test_a_cancelled_job_is_never_a_success(cli: Cli, server: FakeServer) -> None:
    server.ends_as = completed(status="cancelled", phase="cancelled", exit_code=0)
    assert cli("run", "train.py").code == 1


def test_waiting_is_explained(cli: Cli, server: FakeServer) -> None:
    waiting = job_view(status="queued", phase="queued", placement=None, waiting="behind 2 other jobs in the queue")
    frames = [{"stream": "job", "job": waiting}, {"stream": "job", "job": completed()}]
    server.acts = [(frames, 1000)]
    assert "Waiting: behind 2 other jobs in the queue" in cli("run", "train.py").err


def test_detach_prints_the_id_alone(cli: Cli, server: FakeServer) -> None:
    ran = cli("run", "train.py", "--detach")
    assert (ran.code, ran.out) == (0, f"{JOB}\n")
    assert "crucible logs -f job-abc123" in ran.err


def test_detach_as_json_is_one_object_with_the_id(cli: Cli, server: FakeServer) -> None:
    ran = cli("run", "train.py", "--detach", "--json")
    assert ran.json["id"] == JOB
    assert ran.err == ""


def test_following_as_json_is_lines_and_the_job_at_the_end(cli: Cli, server: FakeServer) -> None:
    server.log = b"hello\n"
    ran = cli("run", "train.py", "--json")
    streams = [line.get("stream") for line in ran.lines[:-1]]
    assert "log" in streams
    assert ran.lines[-1]["id"] == JOB
    assert ran.lines[-1]["status"] == "completed"
    assert ran.err == ""


def test_quiet_leaves_the_output_alone(cli: Cli, server: FakeServer) -> None:
    server.log = b"hello\n"
    ran = cli("run", "train.py", "--quiet")
    assert (ran.out, ran.err) == ("hello\n", "")


def test_every_option_reaches_the_job(
    cli: Cli, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "vars").write_text("A=1\n")
    monkeypatch.setenv("HF_TOKEN", "secret")
    options = f"""
        --backend local --tier gpu-small --python {sys.executable} --data pics=images --name first --cpus 2
        --memory 4G --gpus 1 --gpu-memory 16G --time 1h --env HF_TOKEN --env B=2 --env-file vars
        --retries 2 --retry-wait 30s --tag a --tag b --kind benchmark --grace 30s --detach
    """
    assert cli("run", "train.py", *options.split()).code == 0
    spec = server.specs[0]
    assert (spec["backend"], spec["tier"], spec["name"], spec["kind"]) == (
        "local",
        "GPU_SMALL",
        "first",
        "benchmark",
    )
    assert spec["environment"]["interpreter"] == sys.executable
    assert spec["data"] == [{"name": "pics", "source": str(tmp_path / "images")}]
    assert spec["env"] == {"A": "1", "HF_TOKEN": "secret", "B": "2"}
    assert spec["resources"] == {
        "cpus": 2,
        "memory_bytes": 4 * 1024**3,
        "gpus": 1,
        "gpu_memory_bytes": 16 * 1024**3,
        "seconds": 3600,
    }
    assert (spec["retries"]["user"], spec["retries"]["wait_seconds"]) == (2, 30)
    assert (spec["grace_seconds"], spec["tags"]) == (30, ["a", "b"])


def test_code_shell_and_job_files(cli: Cli, server: FakeServer, tmp_path: Path) -> None:
    assert cli("run", "-c", "print(1)", "-d").code == 0
    assert cli("run", "--shell", "ls", "-d").code == 0
    (tmp_path / "job.yaml").write_text("script: train.py\nname: from-file\ntags: [x]\nargs: [a]\n")
    assert cli("run", "job.yaml", "--name", "flag", "-d", "--", "b").code == 0
    code, shell, file = server.specs
    assert code["source"]["kind"] == "code"
    assert shell["command"] == ["/bin/sh", "-c", "ls"]
    assert (file["name"], file["tags"]) == ("flag", ["x"])
    assert file["command"] == ["{python}", "train.py", "a", "b"]


def test_in_place_names_the_folder(cli: Cli, server: FakeServer, tmp_path: Path) -> None:
    assert cli("run", "train.py", "--in-place", "-d").code == 0
    assert (server.specs[0]["in_place"], server.specs[0]["bundle"]) == (str(tmp_path), None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run",), "nothing to run"),
        (("run", "train.py", "-c", "x"), "one thing"),
        (("run", "trian.py"), "Did you mean 'train.py'"),
        (("run", "train.py", "--tier", "gpu_smal"), "Did you mean 'GPU_SMALL'"),
        (("run", "train.py", "--backend", "locl"), "Did you mean 'local'"),
        (("run", "train.py", "--kind", "trian"), "Did you mean 'train'"),
        (("run", "train.py", "--memory", "lots"), "--memory: 'lots' is no amount of memory"),
        (("run", "train.py", "--memory", "4"), "--memory must be at least 16 MiB"),
        (("run", "train.py", "--memmory", "4G"), "Did you mean --memory?"),
        (("run", "train.py", "--cpus", "x"), "--cpus must be a number."),
        (("run", "github.com/foo/bar"), "https://github.com/foo/bar"),
        (("run", ".", "--entry", "nope.py"), "There is no nope.py in /"),
        (("run", "train.py", "--data", "s3://bucket/x"), "s3:// cannot be read"),
        (("run", "train.py", "--python", "sh"), "does not run as a Python"),
        (("run", "train.py", "--time", "soon"), "no length of time"),
        (("run", "train.py", "--cpus", "-3"), "--cpus"),
        (("run", "train.py", "--data", "nosuch"), "does not exist"),
        (("run", "train.py", "--env", "NOSUCH_VARIABLE"), "the shell has no variable"),
        (("run", "train.py", "--epochs", "3"), "There is no option --epochs.\n  Fix: What your own"),
        (("run", "train.py", "extra"), "stands after --"),
        (("run", "train.py", "--python", "nosuch"), "--python nosuch"),
    ],
)
def test_bad_input_is_2_and_nothing_is_stored(
    cli: Cli, server: FakeServer, arguments: tuple[str, ...], says: str
) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert says in ran.err
    assert (server.specs, server.bundles) == ([], {})


def test_bad_input_is_told_before_a_server_is_started(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "nosuch.py").code == 2
    assert not (tmp_path / "home").exists()


def test_a_server_that_dies_while_following_is_awaited(cli: Cli, server: FakeServer) -> None:
    server.acts = [([{"stream": "log", "attempt": 1, "cursor": 4, "text": "one\n"}], None)]
    server.log = b"one\ntwo\n"
    ran = cli("run", "train.py")
    assert (ran.code, ran.out) == (0, "one\ntwo\n")
    assert "the job goes on" in ran.err


def test_ctrl_c_detaches_and_says_how_to_go_on(server: FakeServer, tmp_path: Path) -> None:
    log = {"stream": "log", "attempt": 1, "cursor": 4, "text": "one\n"}
    server.acts = [([log], 0)]
    child = subprocess.Popen(
        [sys.executable, "-m", "crucible", "run", "train.py"],
        cwd=tmp_path,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "one\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    follow, cancel = "crucible logs -f job-abc123", "crucible cancel job-abc123"
    assert f"Detached; the job goes on. Follow: {follow} · Cancel: {cancel}" in err
    assert server.jobs[JOB]["desired"] == "run"


def test_a_terminal_gets_a_live_line_and_the_output_above_it(server: FakeServer, tmp_path: Path) -> None:
    progress = {"epoch": 2, "total_epochs": 3, "loss": 0.25, "eta_seconds": 9, "fraction": 0.5}
    frames = [
        {"stream": "progress", "progress": progress},
        {"stream": "log", "attempt": 1, "cursor": 4, "text": "one\n"},
        {"stream": "job", "job": completed(progress=progress)},
    ]
    server.acts = [(frames, 1000)]
    shown = in_terminal([sys.executable, "-m", "crucible", "run", "train.py"], tmp_path)
    assert "one\r\n" in shown
    assert "epoch 2/3, loss 0.25, 50%, 9s left" in shown
    assert "completed after 42s" in shown


def in_terminal(command: list[str], folder: Path) -> str:
    """What a person would see."""
    import pty

    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    child = subprocess.Popen(command, cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other side is closed: Linux says EIO
            break
        if not data:
            break
        seen += data
    child.wait(10)
    os.close(ours)
    return seen.decode()


def test_the_spec_is_what_the_api_takes(cli: Cli, server: FakeServer) -> None:
    from crucible.core.spec import JobSpec

    cli("run", "train.py", "-d")
    JobSpec.model_validate_json(json.dumps(server.specs[0]))


SIMULATED = {"name": "rehearsal", "connected": True, "capabilities": {"simulated": True}}


def test_places_markets_and_checkpoints_reach_the_server(cli: Cli, server: FakeServer) -> None:
    server.backends.append(SIMULATED)
    flags = ("--backend", "rehearsal,local", "--spot", "--region", "a", "--region", "b")
    assert cli("run", "train.py", "-d", *flags, "--keep-checkpoints", "5", "--seed", "7", "--priority", "3").code == 0
    spec = server.specs[0]
    assert (spec["backend"], spec["fallback"], spec["market"]) == ("rehearsal", ["local"], "spot")
    assert (spec["regions"], spec["seed"], spec["keep"]["latest"], spec["priority"]) == (["a", "b"], 7, 5, 3)


def test_a_fallback_may_stand_alone(cli: Cli, server: FakeServer) -> None:
    server.backends.append(SIMULATED)
    assert (
        cli("run", "train.py", "-d", "--backend", "local", "--fallback", "rehearsal", "--market", "on-demand").code == 0
    )
    assert (server.specs[0]["fallback"], server.specs[0]["market"]) == (["rehearsal"], "on_demand")


def test_flags_win_over_the_places_of_a_job_file(cli: Cli, server: FakeServer, tmp_path: Path) -> None:
    server.backends.append(SIMULATED)
    text = "script: train.py\nbackend: rehearsal\nfallback: [local]\nmarket: spot\nkeep: 2\nseed: 1\n"
    (tmp_path / "job.yaml").write_text(text)
    assert cli("run", "job.yaml", "-d", "--backend", "local", "--seed", "0").code == 0
    spec = server.specs[0]
    assert (spec["backend"], spec["fallback"], spec["market"]) == ("local", [], "spot")
    assert (spec["seed"], spec["keep"]["latest"]) == (0, 2)


def test_a_simulated_place_is_called_so(cli: Cli, server: FakeServer) -> None:
    server.backends.append(SIMULATED)
    assert "Simulated: this place is a rehearsal" in cli("run", "train.py", "-d", "--backend", "rehearsal").err
    assert cli("run", "train.py", "--backend", "rehearsal").err.count("Simulated: ") == 1
    assert "Simulated" not in cli("run", "train.py", "--backend", "local").err
    assert "rehearsal (simulated)" in cli("backends").out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--backend", "rehersal"), "There is no backend"),
        (("--backend", ","), "--backend names no place"),
        (("--fallback", "nosuch"), "There is no backend"),
        (("--market", "spott"), "Did you mean 'spot'"),
        (("--spot", "--market", "reserved"), "contradict"),
        (("--keep-checkpoints", "0"), "--keep-checkpoints must be at least 1"),
        (("--seed", "-1"), "--seed must be at least 0"),
        (("--priority", "1001"), "--priority must be at most 1000"),
    ],
)
def test_wrong_wishes_send_nothing(cli: Cli, server: FakeServer, flags: tuple[str, ...], said: str) -> None:
    ran = cli("run", "train.py", "-d", *flags)
    assert (ran.code, said in ran.err) == (2, True)
    assert server.specs == []
    assert server.bundles == {}


def test_a_variable_that_sounds_like_a_secret_gets_a_word(cli: Cli, server: FakeServer) -> None:
    done = cli("run", "--shell", "true", "--env", "HF_TOKEN=abcd", "--env", "MODE=fast", "--detach")
    assert done.code == 0
    assert "crucible secrets set HF_TOKEN, then --secret HF_TOKEN" in done.err
    assert "MODE" not in done.err
    assert "abcd" not in done.err


def test_secrets_are_sent_by_name(cli: Cli, server: FakeServer) -> None:
    assert cli("run", "--shell", "true", "--secret", "HF_TOKEN", "--secret", "KEY=team-key", "--detach").code == 0
    assert server.specs[-1]["secrets"] == {"HF_TOKEN": "HF_TOKEN", "KEY": "team-key"}


def test_a_value_where_a_secrets_name_belongs_is_refused_and_not_repeated(cli: Cli, server: FakeServer) -> None:
    done = cli("run", "--shell", "true", "--secret", "KEY=not a name!")
    assert done.code == 2
    assert "never its value" in done.err
    assert "not a name!" not in done.err
