from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer, RunningJob
from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend

from crucible.core.people.identity import OWNER
from crucible.core.secret import Secret

pytestmark = pytest.mark.enable_socket


PLACE = "local (this computer: 4 CPUs, 16 GiB, 2 x T4, free) because it is free and it fits"


@pytest.fixture
def backends() -> tuple[FakeBackend, ...]:
    return (FakeCloud("rehearsal"),)


@pytest.fixture(autouse=True)
def a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)


def test_output_goes_to_stdout_and_our_words_to_stderr(cli: Cli, real: RealServer) -> None:
    real.play(output=b"epoch 1\nepoch 2\n", artifacts={"model.bin": b"x" * 2048})
    ran = cli("run", "train.py", "--", "--epochs", "3")
    assert ran.code == 0
    assert ran.out == "epoch 1\nepoch 2\n"
    assert f"Running on {PLACE}" in ran.err
    assert f"{real.last.short} completed after 42s, free" in ran.err
    assert f"1 artifact (2 KiB): crucible download {real.last.short}" in ran.err
    assert real.specs[0]["command"] == ["{python}", "train.py", "--epochs", "3"]


def test_it_returns_the_jobs_own_code_and_says_why(cli: Cli, real: RealServer) -> None:
    real.play(code=3)
    ran = cli("run", "train.py")
    assert ran.code == 3
    assert "failed after 42s (exit code 3)" in ran.err
    assert "The program ended with an error." in ran.err


def test_what_to_do_about_a_failure_is_told(cli: Cli, real: RealServer) -> None:
    real.play(code=None, signal=9, cause="out_of_memory")
    ran = cli("run", "train.py")
    assert ran.code == 137
    assert "memory" in ran.err.splitlines()[-2]
    assert ran.err.splitlines()[-1].startswith("  ")


def test_the_output_that_was_just_seen_is_not_advertised(cli: Cli, real: RealServer) -> None:
    real.play(code=1, output=b"Traceback\nModuleNotFoundError: No module named 'torch'\n")
    ran = cli("run", "train.py")
    assert "The program ended with an error." in ran.err
    assert "crucible logs" not in ran.err
    assert "no module torch" in ran.err


def test_crucibles_own_lines_stay_out_of_standard_output(cli: Cli, real: RealServer) -> None:
    real.play(output=b"[crucible] building the environment\nhello\n")
    ran = cli("run", "train.py")
    assert ran.out == "hello\n"
    assert "[crucible] building the environment\n" in ran.err
    ran = cli("run", "train.py", "--quiet")
    assert (ran.out, ran.err) == ("hello\n", "")


def test_notes_come_with_the_submission(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    ran = cli("run", "train.py", "-d")
    assert ran.code == 0
    assert "pyproject.toml is not valid TOML, so its dependencies are unknown" in ran.err


def test_a_job_that_is_tried_again_says_when(cli: Cli, real: RealServer) -> None:
    async def play(job: RunningJob) -> None:
        await job.start()
        await job.end(1)
        await job.says("attempt 2 starts")
        real.harness.clock.move(45)
        await real.perform(job)

    real.play(play)
    ran = cli("run", "train.py", "--retries", "1", "--retry-wait", "45s")
    told = ["Running on", "Attempt 1 ended", "Waiting: attempt 2 starts 45 s after the last one", "completed"]
    assert ran.code == 0
    assert sorted(told, key=ran.err.index) == told


def test_a_job_ended_by_a_signal_returns_128_and_its_number(cli: Cli, real: RealServer) -> None:
    real.play(code=None, signal=9, cause="signal")
    assert cli("run", "train.py").code == 137


def test_a_cancelled_job_is_never_a_success(cli: Cli, real: RealServer) -> None:
    async def play(job: RunningJob) -> None:
        await job.start()
        await job.cancel()
        await job.end(0, cause="stopped")

    real.play(play)
    assert cli("run", "train.py").code == 1
    assert real.view(real.last).status == "cancelled"


def test_waiting_is_explained(cli: Cli, real: RealServer) -> None:
    other = real.start(cpus=4.0)

    async def play(job: RunningJob) -> None:
        await other.end()
        await real.perform(job)

    real.play(play)
    err = cli("run", "train.py", "--cpus", "1").err
    assert f"Waiting: waits for 1 CPUs: 0 free, held by {other.short}" in err
    assert err.index("Waiting:") < err.index(f"Running on {PLACE}")


def test_a_job_that_is_queued_again_before_it_started_says_where_it_will_run(
    cli: Cli, real: RealServer, backends: tuple[FakeCloud, ...]
) -> None:
    async def play(job: RunningJob) -> None:
        await job.harness.place()
        await job.harness.performer.perform_due()
        backends[0].sold_out = set(backends[0].rates)
        await job.harness.offers.refresh()
        await job.lose_machine()
        await job.says("waits for a machine on rehearsal: sold out")
        await job.cancel()

    real.play(play)
    err = cli("run", "train.py", "--backend", "rehearsal").err
    placed = "rehearsal (sim.small: 2 CPUs, 4 GiB, $0.900/h) because you asked for it"
    waits = "waits for a machine on rehearsal: sold out"
    assert f"Will run on {placed}; waiting: {waits}\n" in err
    assert f"Waiting: {waits}" not in err


def test_detach_prints_the_id_alone(cli: Cli, real: RealServer) -> None:
    ran = cli("run", "train.py", "--detach")
    assert (ran.code, ran.out) == (0, f"{real.last.id}\n")
    assert f"crucible logs -f {real.last.short}" in ran.err


def test_detach_as_json_is_one_object_with_the_id(cli: Cli, real: RealServer) -> None:
    ran = cli("run", "train.py", "--detach", "--json")
    assert ran.json["id"] == real.last.id
    assert ran.err == ""


def test_following_as_json_is_lines_and_the_job_at_the_end(cli: Cli, real: RealServer) -> None:
    real.play(output=b"hello\n")
    ran = cli("run", "train.py", "--json")
    streams = [line.get("stream") for line in ran.lines[:-1]]
    assert "log" in streams
    assert ran.lines[-1]["id"] == real.last.id
    assert ran.lines[-1]["status"] == "completed"
    assert ran.err == ""


def test_quiet_leaves_the_output_alone(cli: Cli, real: RealServer) -> None:
    real.play(output=b"hello\n")
    ran = cli("run", "train.py", "--quiet")
    assert (ran.out, ran.err) == ("hello\n", "")


def test_every_option_reaches_the_job(
    cli: Cli, real: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "vars").write_text("A=1\n")
    monkeypatch.setenv("HF_TOKEN", "secret")
    options = f"""
        --backend local --tier gpu-small --python {sys.executable} --data pics=images --name first --cpus 2
        --memory 4G --gpus 1 --gpu-memory 8G --time 1h --env HF_TOKEN --env B=2 --env-file vars
        --retries 2 --retry-wait 30s --tag a --tag b --kind benchmark --grace 30s --max-wait 2h --detach
    """
    assert cli("run", "train.py", *options.split()).code == 0
    spec = real.specs[0]
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
        "gpu_memory_bytes": 8 * 1024**3,
        "seconds": 3600,
    }
    assert (spec["retries"]["user"], spec["retries"]["wait_seconds"]) == (2, 30)
    assert (spec["grace_seconds"], spec["max_wait_seconds"], spec["tags"]) == (30, 7200, ["a", "b"])


def test_code_shell_and_job_files(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    assert cli("run", "-c", "print(1)", "-d").code == 0
    assert cli("run", "--shell", "ls", "-d").code == 0
    (tmp_path / "job.yaml").write_text("script: train.py\nname: from-file\ntags: [x]\nargs: [a]\n")
    assert cli("run", "job.yaml", "--name", "flag", "-d", "--", "b").code == 0
    code, shell, file = real.specs
    assert code["source"]["kind"] == "code"
    assert shell["command"] == ["/bin/sh", "-c", "ls"]
    assert (file["name"], file["tags"]) == ("flag", ["x"])
    assert file["command"] == ["{python}", "train.py", "a", "b"]


def test_in_place_names_the_folder(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    assert cli("run", "train.py", "--in-place", "-d").code == 0
    assert (real.specs[0]["in_place"], real.specs[0]["bundle"]) == (str(tmp_path), None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run",), "nothing to run"),
        (("run", "train.py", "-c", "x"), "one thing"),
        (("run", "trian.py"), "Did you mean 'train.py'"),
        (("run", "train.py", "--tier", "gpu_smal"), "Did you mean 'GPU_SMALL'"),
        (("run", "train.py", "--backend", "locl"), "Did you mean 'local'"),
        (("run", "train.py", "--kind", "trian"), "Did you mean 'train'"),
        (("run", "train.py", "--memory", "lots"), "--memory: 'lots' is not a valid amount of memory"),
        (("run", "train.py", "--memory", "4"), "--memory must be at least 16 MiB"),
        (("run", "train.py", "--memmory", "4G"), "Did you mean --memory?"),
        (("run", "train.py", "--cpus", "x"), "--cpus must be a number."),
        (("run", "github.com/foo/bar"), "https://github.com/foo/bar"),
        (("run", ".", "--entry", "nope.py"), "There is no nope.py in /"),
        (("run", "train.py", "--data", "s3://bucket/x"), "s3:// cannot be read"),
        (("run", "train.py", "--python", "sh"), "does not run as a Python"),
        (("run", "train.py", "--time", "soon"), "not a valid duration"),
        (("run", "train.py", "--cpus", "-3"), "--cpus"),
        (("run", "train.py", "--data", "nosuch"), "does not exist"),
        (("run", "train.py", "--env", "NOSUCH_VARIABLE"), "the shell has no variable"),
        (("run", "train.py", "--epochs", "3"), "There is no option --epochs.\n  Fix: Arguments of your own"),
        (("run", "train.py", "extra"), "go after --"),
        (("run", "train.py", "--python", "nosuch"), "--python nosuch"),
    ],
)
def test_bad_input_is_2_and_nothing_is_stored(
    cli: Cli, real: RealServer, arguments: tuple[str, ...], says: str
) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert says in ran.err
    assert (real.specs, real.bundles) == ([], [])


def test_words_that_name_files_are_arguments_of_the_program(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text("")
    ran = cli("run", "train.py", "small.yaml", "--detach", "--", "--epochs", "3")
    assert ran.code == 0, ran.err
    assert real.specs[-1]["command"] == ["{python}", "train.py", "small.yaml", "--epochs", "3"]


def test_bad_input_is_told_before_a_server_is_started(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "nosuch.py").code == 2
    assert not (tmp_path / "home").exists()


def test_a_connection_that_breaks_while_following_is_made_again(cli: Cli, real: RealServer) -> None:
    async def play(job: RunningJob) -> None:
        await job.start()
        await job.write(b"one\n")
        await job.write(b"two\n")
        await job.end()

    real.play(play)
    real.faults.cut_socket(after="one\\n")
    ran = cli("run", "train.py")
    assert (ran.code, ran.out) == (0, "one\ntwo\n")
    assert "the job goes on" in ran.err
    assert len(real.streams) == 2


def test_ctrl_c_detaches_and_says_how_to_go_on(real: RealServer, tmp_path: Path) -> None:
    async def play(job: RunningJob) -> None:
        await job.start()
        await job.write(b"one\n")

    real.play(play)
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
    follow, cancel = f"crucible logs -f {real.last.short}", f"crucible cancel {real.last.short}"
    assert f"Detached; the job continues. Follow: {follow} · Cancel: {cancel}" in err
    assert real.view(real.last).desired == "run"


def test_a_terminal_gets_a_live_line_and_the_output_above_it(real: RealServer, tmp_path: Path) -> None:
    drawn = threading.Event()

    async def play(job: RunningJob) -> None:
        await job.start()
        await job.progress(epoch=2, total_epochs=3, loss=0.25, eta_seconds=9.0, fraction=0.5)
        await job.write(b"one\n")
        await asyncio.to_thread(drawn.wait, 20)
        await job.end()

    def look(seen: bytes) -> None:
        if b"9s left" in seen and b"one\r\n" in seen:
            drawn.set()

    real.play(play)
    shown = in_terminal([sys.executable, "-m", "crucible", "run", "train.py"], tmp_path, look)
    assert "one\r\n" in shown
    assert "epoch 2/3, loss 0.25, 50%, 9s left" in shown
    assert "completed after 42s" in shown


def in_terminal(command: list[str], folder: Path, look: Callable[[bytes], None]) -> str:
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
        look(seen)
    child.wait(10)
    os.close(ours)
    return seen.decode()


def test_the_spec_is_what_the_api_takes(cli: Cli, real: RealServer) -> None:
    from crucible.core.job.spec import JobSpec

    cli("run", "train.py", "-d")
    JobSpec.model_validate_json(json.dumps(real.specs[0]))


def test_places_markets_and_checkpoints_reach_the_server(cli: Cli, real: RealServer) -> None:
    flags = ("--backend", "rehearsal,local", "--spot", "--region", "north-1", "--region", "south-1")
    assert cli("run", "train.py", "-d", *flags, "--keep-checkpoints", "5", "--seed", "7", "--priority", "3").code == 0
    spec = real.specs[0]
    assert (spec["backend"], spec["fallback"], spec["market"]) == ("rehearsal", ["local"], "spot")
    assert (spec["regions"], spec["seed"], spec["keep"]["latest"], spec["priority"]) == (
        ["north-1", "south-1"],
        7,
        5,
        3,
    )


def test_spot_may_become_on_demand_only_if_the_user_says_so(cli: Cli, real: RealServer) -> None:
    for flags in (["--spot"], ["--spot-fallback"], ["--spot", "--spot-fallback"]):
        assert cli("run", "train.py", "-d", "--backend", "rehearsal", *flags).code == 0
    sent = [(spec["market"], spec.get("spot_fallback")) for spec in real.specs]
    assert sent == [("spot", None), ("spot", True), ("spot", True)]


def test_a_fallback_may_stand_alone(cli: Cli, real: RealServer) -> None:
    assert (
        cli("run", "train.py", "-d", "--backend", "local", "--fallback", "rehearsal", "--market", "on-demand").code == 0
    )
    assert (real.specs[0]["fallback"], real.specs[0]["market"]) == (["rehearsal"], "on_demand")


def test_flags_win_over_the_places_of_a_job_file(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    text = "script: train.py\nbackend: rehearsal\nfallback: [local]\nmarket: spot\nkeep: 2\nseed: 1\n"
    (tmp_path / "job.yaml").write_text(text)
    assert cli("run", "job.yaml", "-d", "--backend", "local", "--seed", "0").code == 0
    spec = real.specs[0]
    assert (spec["backend"], spec["fallback"], spec["market"]) == ("local", [], "spot")
    assert (spec["seed"], spec["keep"]["latest"]) == (0, 2)


def test_a_simulated_place_is_called_so(cli: Cli, real: RealServer) -> None:
    assert "Simulated: this backend is a rehearsal" in cli("run", "train.py", "-d", "--backend", "rehearsal").err
    real.play()
    assert cli("run", "train.py", "--backend", "rehearsal").err.count("Simulated: ") == 1
    assert "Simulated" not in cli("run", "train.py", "--backend", "local").err
    assert "rehearsal (simulated)" in cli("backends").out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--backend", "rehersal"), "There is no backend"),
        (("--backend", ","), "--backend names no backend"),
        (("--fallback", "nosuch"), "There is no backend"),
        (("--market", "spott"), "Did you mean 'spot'"),
        (("--spot", "--market", "reserved"), "contradict"),
        (("--outputs", "*.pt", "--no-outputs"), "contradict"),
        (("--spot-fallback", "--market", "reserved"), "--spot-fallback: needs the market spot, not reserved"),
        (("--keep-checkpoints", "0"), "--keep-checkpoints must be at least 1"),
        (("--seed", "-1"), "--seed must be at least 0"),
        (("--priority", "1001"), "--priority must be at most 1000"),
    ],
)
def test_wrong_wishes_send_nothing(cli: Cli, real: RealServer, flags: tuple[str, ...], said: str) -> None:
    ran = cli("run", "train.py", "-d", *flags)
    assert (ran.code, said in ran.err) == (2, True)
    assert real.specs == []
    assert real.bundles == []


def test_a_variable_that_sounds_like_a_secret_gets_a_word(cli: Cli, real: RealServer) -> None:
    done = cli("run", "--shell", "true", "--env", "HF_TOKEN=abcd", "--env", "MODE=fast", "--detach")
    assert done.code == 0
    assert "crucible secrets set HF_TOKEN, then --secret HF_TOKEN" in done.err
    assert "MODE" not in done.err
    assert "abcd" not in done.err


def test_secrets_are_sent_by_name(cli: Cli, real: RealServer) -> None:
    for name in ("HF_TOKEN", "team-key"):
        real.run(real.app.control.secrets.set, OWNER, "default", name, Secret("s3cret"))
    assert cli("run", "--shell", "true", "--secret", "HF_TOKEN", "--secret", "KEY=team-key", "--detach").code == 0
    assert real.specs[-1]["secrets"] == {"HF_TOKEN": "HF_TOKEN", "KEY": "team-key"}


def test_a_value_where_a_secrets_name_belongs_is_refused_and_not_repeated(cli: Cli, real: RealServer) -> None:
    done = cli("run", "--shell", "true", "--secret", "KEY=not a name!")
    assert done.code == 2
    assert "never its value" in done.err
    assert "not a name!" not in done.err
