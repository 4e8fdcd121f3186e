from __future__ import annotations

from crucible.agent.clock import Silence, boottime


def test_the_boot_time_clock_goes_forward() -> None:
    assert 0 < boottime() <= boottime()


def test_silence_counts_from_the_last_contact() -> None:
    silence = Silence.begin(100.0).tick(130.0)
    assert silence.lasts(30.0)
    assert not silence.lasts(31.0)
    assert not silence.made(131.0).tick(140.0).lasts(30.0)


def test_after_a_jump_one_contact_is_tried_before_the_silence_counts() -> None:
    slept = Silence.begin(0.0).tick(10.0).tick(4000.0)
    assert not slept.lasts(30.0)
    assert not slept.tick(4001.0).lasts(30.0)
    assert slept.failed(4002.0).lasts(30.0)
    assert not slept.made(4002.0).tick(4003.0).lasts(30.0)
