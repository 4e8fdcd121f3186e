from __future__ import annotations

import pytest

from crucible.agent.clock import Deadline, Silence, boot_id, boottime


def test_the_boot_time_clock_goes_forward() -> None:
    assert 0 < boottime() <= boottime()


def test_a_boot_has_one_id() -> None:
    assert boot_id() == boot_id()


def test_silence_counts_from_the_last_contact() -> None:
    silence = Silence.begin(100.0).tick(130.0)
    assert silence.has_lasted(30.0)
    assert not silence.has_lasted(31.0)
    assert not silence.contacted(131.0).tick(140.0).has_lasted(30.0)


def slept() -> Silence:
    return Silence.begin(0.0).tick(10.0).tick(4000.0)


def test_after_a_jump_a_contact_is_tried_before_the_silence_counts() -> None:
    assert not slept().has_lasted(30.0)
    assert not slept().tick(4050.0).has_lasted(30.0)
    assert slept().tick(4050.0).failed(4051.0, began=4050.0).has_lasted(30.0)
    assert not slept().contacted(4002.0).tick(4003.0).has_lasted(30.0)


def test_a_contact_from_before_the_jump_says_nothing() -> None:
    assert not slept().failed(4001.0, began=8.0).tick(4040.0).has_lasted(30.0)


def test_a_jump_that_a_failure_finds_first_is_a_jump() -> None:
    assert not Silence.begin(0.0).tick(10.0).failed(4000.0, began=9.0).has_lasted(30.0)


def test_a_network_may_need_a_while_after_a_jump() -> None:
    assert not slept().failed(4002.0, began=4001.0).tick(4003.0).has_lasted(30.0)


def test_a_deadline_is_kept_over_processes_but_not_over_boots() -> None:
    deadline = Deadline.after(600.0, 50.0)
    assert deadline == Deadline(650.0, 600.0)
    doc = deadline.to_dict("boot")
    assert Deadline.from_dict(doc, "boot") == deadline
    assert Deadline.from_dict(doc, "another") is None
    assert Deadline.from_dict(None, "boot") is None
    with pytest.raises(ValueError, match="could not convert"):
        Deadline.from_dict({"boot": "boot"}, "boot")


def test_no_end_is_no_deadline() -> None:
    assert Deadline.after(None, 50.0) is None
