"""Test the progress of a job that follows from its lines of output."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.agent.output.parsing import LineValues, OutputParser, Progress, update_progress


def follow(*timed: tuple[float, str]) -> Progress:
    parser, progress = OutputParser(), Progress()
    for now, line in timed:
        for seen in parser.feed(line):
            progress = update_progress(progress, seen, now)
    return progress


def lines(*texts: str) -> Progress:
    return follow(*((float(i), text) for i, text in enumerate(texts)))


def test_nothing_is_known_at_first() -> None:
    assert Progress().fraction is None
    assert Progress().as_dict()["message"] == ""


def test_results_of_an_epoch_mean_it_is_done_and_its_heading_that_it_begins() -> None:
    assert lines("epoch 3/10 loss=0.12").fraction == pytest.approx(0.3)
    assert lines("Epoch 3/10").fraction == pytest.approx(0.2)


def test_epochs_counted_from_zero_are_noticed() -> None:
    progress = lines("epoch 0/10 loss=0.5", "epoch 4/10 loss=0.1")
    assert progress.fraction == pytest.approx(0.5)
    assert progress.message == "Training epoch 5/10"
    assert (progress.as_dict()["epoch"], progress.as_dict()["total_epochs"]) == (5, 10)


def test_the_last_epoch_is_told_as_the_last_by_whatever_number_it_begins() -> None:
    assert lines("epoch 0 loss=0.5", "epoch 1/2 loss=0.1").as_dict()["epoch"] == 2
    assert lines("epoch 1/2 loss=0.5", "epoch 2/2 loss=0.1").as_dict()["epoch"] == 2


def test_a_report_says_that_its_epochs_count_from_zero_where_no_number_shows_it() -> None:
    resumed = '{"crucible": 1, "from_zero": true, "metrics": {"loss": 0.1, "epoch": 1, "total_epochs": 2}}'
    progress = lines(resumed)
    assert (progress.as_dict()["epoch"], progress.fraction, progress.message) == (2, 1.0, "Training epoch 2/2")
    for other in ("false", '"yes"', "1", "null"):
        assert lines(resumed.replace("true", other)).as_dict()["epoch"] == 1


def test_parts_of_an_epoch_are_told_as_they_are() -> None:
    halfway = lines("{'loss': 0.9, 'epoch': 0.0}", "{'loss': 0.5, 'epoch': 0.5}", "{'loss': 0.1, 'epoch': 1.0}")
    assert halfway.as_dict()["epoch"] == 1


def test_steps_within_an_epoch_refine_it() -> None:
    progress = lines("Epoch 5/10", " 50/100 [====>....] - ETA: 3s - loss: 0.25")
    assert progress.fraction == pytest.approx(0.45)
    assert (progress.epoch, progress.total_epochs, progress.step, progress.total_steps) == (5, 10, 50, 100)
    assert progress.loss == 0.25
    assert progress.message == "Training epoch 5/10"


def test_the_rich_bar_of_lightning_counts_epochs_from_zero_also_after_a_resume() -> None:
    """Lightning 2.6.6 prints this as the last frame of five epochs, in a pipe as the only one."""
    last = lines("Epoch 4/4 ━━━━━━━━━━━━━━━━ 20/20 0:00:00 • 0:00:00 371.88it/s v_num: 0.000")
    assert (last.as_dict()["epoch"], last.fraction, last.message) == (5, 1.0, "Training epoch 5/5")
    halfway = lines("Epoch 3/9 ━━━━━━━━╺━━━━━━━ 50/100 0:00:10 • 0:00:12 4.5it/s v_num: 0.000 train_loss: 0.123")
    assert halfway.fraction == pytest.approx(0.35)


def test_lightning_epochs_without_a_total_give_no_fraction() -> None:
    progress = lines("Epoch 3:  45%|███ | 45/100 [00:10<00:12, 4.5it/s, train_loss=0.123]")
    assert progress.fraction is None
    assert (progress.epoch, progress.step, progress.loss) == (3, 45, 0.123)


def test_steps_of_a_total() -> None:
    progress = lines("Step 100/1000 - loss: 0.5")
    assert progress.fraction == pytest.approx(0.1)
    assert progress.message == "Training step 100/1000"


def test_steps_without_a_total() -> None:
    progress = lines("iter 100: loss 2.4543, time 23.11ms, mfu 1.20%")
    assert progress.fraction is None
    assert progress.message == "Training step 100"


def test_a_total_said_once_serves_later_steps() -> None:
    progress = lines(
        '{"crucible":1,"step":1,"metrics":{"total_steps":50}}', '{"crucible":1,"step":5,"metrics":{"loss":1}}'
    )
    assert progress.fraction == pytest.approx(0.1)


def test_a_bare_bar_counts_while_nothing_better_is_known() -> None:
    bar = " 50%|█████     | 250/500 [00:10<00:12, 4.5it/s]"
    assert lines(bar).fraction == 0.5
    assert lines(bar).message == "Running 250/500"
    assert lines("epoch 1/10 loss=0.1", bar).fraction == pytest.approx(0.1)
    assert lines(bar, "epoch 1/10 loss=0.1").fraction == pytest.approx(0.1)


def test_hugging_face_bar_with_fractional_epochs() -> None:
    progress = lines(
        "  5%|▌         | 25/500 [00:10<03:12, 2.47it/s]",
        "{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 0.15}",
        " 10%|█         | 50/500 [00:20<03:02, 2.47it/s]",
        "100%|██████████| 7/7 [00:01<00:00, 5.1it/s]",
    )
    assert progress.fraction == pytest.approx(0.1)
    assert progress.loss == 0.5
    assert progress.message == "Training epoch 0.15"


def test_a_finished_bar_gives_way_to_the_next() -> None:
    done = "100%|██████████| 900/900 [00:10<00:00, 90it/s]"
    assert lines(done, " 10%|█         | 10/100 [00:01<00:09, 10it/s]").fraction == pytest.approx(0.1)


def test_fraction_never_passes_one() -> None:
    assert lines("epoch 12/10 loss=0.1").fraction == 1.0


def test_eta_from_a_steady_rate() -> None:
    progress = follow(*((float(s), f"step {s}/100 loss=0.5") for s in range(51)))
    assert progress.eta_seconds == pytest.approx(50.0, rel=0.01)
    assert follow((0.0, "step 50/100 loss=1"), (9.0, "step 100/100 loss=1")).eta_seconds == 0.0


def test_eta_forgets_a_slow_start_but_not_for_one_jump() -> None:
    slow = [(0.0, "step 0/1000 loss=1"), (100.0, "step 1/1000 loss=1")]
    steady = [(100.0 + s, f"step {1 + s}/1000 loss=1") for s in range(1, 300)]
    progress = follow(*slow, *steady)
    assert progress.eta_seconds == pytest.approx(700, rel=0.05)
    jump = follow(*slow, *steady, (400.0, "step 400/1000 loss=1"))
    assert jump.eta_seconds is not None
    assert jump.eta_seconds > 150


def test_many_lines_in_one_instant_do_not_spoil_the_rate() -> None:
    burst = [(10.0 + i / 1000, f"step {100 + i}/1000 loss=1") for i in range(10)]
    progress = follow((0.0, "step 0/1000 loss=1"), *burst)
    assert progress.eta_seconds == pytest.approx(90, rel=0.02)


def test_going_back_starts_the_rate_again() -> None:
    progress = follow((0.0, "step 50/100 loss=1"), (10.0, "step 60/100 loss=1"), (11.0, "step 1/100 loss=1"))
    assert progress.eta_seconds is None
    assert progress.fraction == pytest.approx(0.01)


def test_loss_is_the_training_loss() -> None:
    assert lines("step 250: val loss 2.2, train loss 2.1").loss == 2.1
    assert lines("step 1 loss=3", "step 1 val_loss=9").loss == 3
    assert lines("step 1 box_loss=3").loss == 3


def test_as_dict_is_plain_json() -> None:
    progress = lines("step 10/100: loss nan")
    assert progress.loss is not None
    assert math.isnan(progress.loss)
    document = json.loads(json.dumps(progress.as_dict(), allow_nan=False))
    assert document["loss"] is None
    assert set(document) == {
        "fraction", "epoch", "total_epochs", "step", "total_steps", "loss", "eta_seconds", "message",
    }  # fmt: skip


_COUNT = st.one_of(st.none(), st.integers(0, 10**14))


@given(
    st.lists(
        st.tuples(
            st.builds(
                LineValues,
                step=_COUNT,
                epoch=st.one_of(_COUNT, st.floats(0, 1e6)),
                total_steps=_COUNT,
                total_epochs=_COUNT,
                metrics=st.sampled_from([(), (("loss", 0.5),)]),
                within_epoch=st.booleans(),
                bare=st.booleans(),
            ),
            st.floats(0, 1e6),
        ),
        max_size=8,
    )
)
def test_any_sequence_keeps_progress_sound(sequence: list[tuple[LineValues, float]]) -> None:
    progress = Progress()
    for seen, now in sequence:
        progress = update_progress(progress, seen, now)
        assert progress.fraction is None or 0 <= progress.fraction <= 1
        assert progress.eta_seconds is None or progress.eta_seconds >= 0
        json.dumps(progress.as_dict(), allow_nan=False)
