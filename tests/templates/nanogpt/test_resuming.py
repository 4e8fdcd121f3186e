"""Stopped, killed and damaged: a run goes on exactly, or says why it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.templates.nanogpt.torch_fork_server import Start, TorchForkServer
from tests.templates.nanogpt.trainer import Trainer

STEPS, INTERVAL = 200, 20
FLAGS = ("--log-every", "1", "--checkpoint-every", str(INTERVAL))
SIZED = ("--preset", "cpu-tiny", *FLAGS)

VARIANTS = """
import os, sys, torch
from pathlib import Path
source, folder = Path(sys.argv[1]), Path(sys.argv[2])
class Evil:
    def __reduce__(self):
        return os.mkdir, (str(folder / "was-run"),)
def save(name, change):
    content = torch.load(source, weights_only=True)
    change(content)
    torch.save(content, folder / name)
save("no-random.pt", lambda content: content.pop("random"))
save("no-sampler.pt", lambda content: content.pop("sampler"))
save("moved.pt", lambda content: content["sampler"].update(position=0))
save("newer.pt", lambda content: content.update(version=99))
save("evil.pt", lambda content: content.update(step=Evil()))
"""


def metrics(outputs: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((outputs / "metrics.json").read_text())
    return found


def sha256_in(outputs: Path) -> str:
    return str(metrics(outputs)["weights_sha256"])


def newest(folder: Path) -> Path:
    return max(folder.glob("step_*.pt"))


def step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step_"))


def resuming(folder: Path, path: Path, *flags: str) -> Start:
    return Start(folder, flags, env=(("CRUCIBLE_RESUME_FROM", str(path)),))


@pytest.fixture(scope="module")
def late(uninterrupted: Path) -> Path:
    return uninterrupted / "checkpoints" / "step_00000180.pt"


@pytest.fixture(scope="module")
def variants(
    python: Path, code: Path, torch_fork_server: TorchForkServer, late: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Copies of a checkpoint, each wrong in one way."""
    folder = tmp_path_factory.mktemp("variants")
    Trainer(python, code, folder, torch_fork_server).probe(VARIANTS, str(late), str(folder))
    return folder


def test_three_interruptions_do_not_change_the_weights(trainer: Trainer, uninterrupted: Path) -> None:
    first = trainer.attempt(1, *SIZED)
    ended = [first.stopped_at(47)]
    second = trainer.attempt(2, *FLAGS, resume_from=first.checkpoints)
    ended.append(second.killed_at(109))
    third = trainer.attempt(3, *FLAGS, resume_from=newest(second.checkpoints))
    ended.append(third.stopped_at(131))
    fourth = trainer.attempt(4, *FLAGS, resume_from=third.checkpoints)
    ended.append(fourth.to_the_end())

    assert [done.code for done in ended] == [0, -9, 0, 0], ended
    saved = [step_of(newest(each.checkpoints)) for each in (first, second, third)]
    assert [done.steps[0] for done in ended[1:]] == [step + 1 for step in saved]
    assert min(done.steps[0] for done in ended[1:]) > 1
    assert saved[0] == ended[0].steps[-1] >= 47
    assert saved[2] == ended[2].steps[-1] >= 131
    assert STEPS <= sum(len(done.steps) for done in ended) <= STEPS + INTERVAL
    assert ended[3].steps[-1] == STEPS

    theirs = uninterrupted / "outputs"
    # By torch alone, then by what the template says of itself.
    ours, wanted = trainer.digests(fourth.outputs / "model.pt", theirs / "model.pt")
    assert ours == wanted
    assert metrics(fourth.outputs) == metrics(theirs)


def test_without_its_random_state_the_weights_would_differ(
    trainer: Trainer, uninterrupted: Path, late: Path, variants: Path
) -> None:
    """What the test above rests on: it fails for a checkpoint without random state or place in the data."""
    folders = [trainer.folder / name for name in ("whole", "robbed", "moved")]
    sources = (late, variants / "no-random.pt", variants / "moved.pt")
    starts = [resuming(folder, source) for folder, source in zip(folders, sources, strict=True)]
    whole, robbed, moved = trainer.together(*starts)
    assert (whole.code, robbed.code, moved.code) == (0, 0, 0)
    found = [sha256_in(folder / "outputs") == sha256_in(uninterrupted / "outputs") for folder in folders]
    assert found == [True, False, False]
    assert "not be exactly" in robbed.output
    assert "not be exactly" not in whole.output


def test_checkpoints_that_cannot_be_used_are_refused(
    trainer: Trainer, uninterrupted: Path, late: Path, variants: Path
) -> None:
    (trainer.folder / "other.txt").write_text("another text, long enough. " * 200)
    (variants / "torn.pt").write_bytes(late.read_bytes()[:-5000])
    (variants / "text.pt").write_text("hello")
    (variants / "empty").mkdir()
    cases = [
        (late, ("--width", "32"), "width is 64 there and 32 here"),
        (late, ("--preset", "cpu"), "layers is 1 there and 4 here"),
        (late, ("--seed", "7"), "seed is 1 there and 7 here"),
        (late, ("--text", "other.txt"), "another text"),
        (variants / "nothing", (), "there is no checkpoint at"),
        (variants / "empty", (), "no file in"),
        (variants / "text.pt", (), "cut short or damaged"),
        (variants / "torn.pt", (), "cut short or damaged"),
        (variants / "no-sampler.pt", (), "lacks sampler"),
        (variants / "newer.pt", (), "format version 99"),
        (variants / "evil.pt", (), "evil.pt"),
        (uninterrupted / "outputs" / "model.pt", (), "no checkpoint of this program"),
    ]
    ended = trainer.together(*(resuming(trainer.folder, path, *flags) for path, flags, _ in cases))
    for (path, flags, said), done in zip(cases, ended, strict=True):
        assert (done.code, done.steps) == (2, []), (path, flags)
        assert said in done.errors, (path, flags)
    assert not (variants / "was-run").exists(), "a checkpoint ran code"


def test_started_again_by_hand_it_goes_on_from_its_own_folder(trainer: Trainer) -> None:
    first, again, done, fresh = trainer.together(
        Start(trainer.folder, (*SIZED, "--steps", "30")),
        Start(trainer.folder, ("--steps", "35")),
        Start(trainer.folder, ()),
        Start(trainer.folder, (*SIZED, "--steps", "5", "--seed", "2", "--fresh")),
    )
    assert first.steps[-1] == 30
    assert again.steps == [31, 32, 33, 34, 35]
    assert (done.code, done.steps) == (0, [])
    assert "wrote model.pt" in done.output
    assert fresh.steps == [1, 2, 3, 4, 5]
    assert [path.name for path in (trainer.folder / "checkpoints").iterdir()] == ["step_00000005.pt"]


def test_a_sigterm_that_the_platform_did_not_send_is_no_success(trainer: Trainer) -> None:
    attempt = trainer.attempt(1, *SIZED)
    done = attempt.terminated_at(5)
    assert done.code == 143
    assert step_of(newest(attempt.checkpoints)) == done.steps[-1]
    assert not attempt.outputs.exists()


def test_off_the_platform_sigterm_saves_and_ends_well(trainer: Trainer) -> None:
    attempt = trainer.attempt(1, *SIZED, on_platform=False)
    done = attempt.terminated_at(5)
    assert done.code == 0
    assert [step_of(path) for path in attempt.checkpoints.iterdir()] == [done.steps[-1]]


TORN = """
import random, sys
from pathlib import Path
import checkpoints
whole, folder = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
path, chance = folder / "torn.pt", random.Random(5)
def refused(content):
    path.write_bytes(content)
    try:
        checkpoints.load(path)
    except checkpoints.Unusable:
        return True
    return False
cuts = [0, 1, len(whole) // 2, len(whole) - 1] + [chance.randrange(len(whole)) for _ in range(40)]
holes = [chance.randrange(len(whole) // 10, len(whole) - 9000) for _ in range(20)]
hollow = [whole[:at] + bytes(8192) + whole[at + 8192 :] for at in holes]
print(all(refused(whole[:at]) for at in cuts), all(refused(each) for each in hollow), refused(whole))
"""


def test_a_torn_checkpoint_is_never_read(trainer: Trainer, late: Path) -> None:
    assert trainer.probe(TORN, str(late), str(trainer.folder)) == "True True False"


def test_a_torn_checkpoint_of_a_folder_is_skipped_for_the_one_before(
    trainer: Trainer, uninterrupted: Path, late: Path
) -> None:
    folder = trainer.folder / "mixed"
    folder.mkdir()
    (folder / late.name).write_bytes(late.read_bytes()[:-5000])
    before = late.with_name("step_00000160.pt")
    (folder / before.name).write_bytes(before.read_bytes())
    (folder / ".step_00000199.pt.1.tmp").write_bytes(b"unfinished")

    attempt = trainer.attempt(1, *FLAGS, resume_from=folder)
    done = attempt.to_the_end()
    assert done.steps[0] == 161
    assert f"skipped: {folder / late.name} is cut short or damaged" in done.output
    assert sha256_in(attempt.outputs) == sha256_in(uninterrupted / "outputs")
