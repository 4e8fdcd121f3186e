from __future__ import annotations

import pytest
from pydantic import ValidationError

from crucible.core.people.identity import LONGEST_PASSWORD
from crucible.core.requests import DAY, NewToken, TrainingResumption, UserChange


@pytest.mark.parametrize("change", [{"subject": "x" * 256}, {"password": "x" * (LONGEST_PASSWORD + 1)}, {"name": "x"}])
def test_a_change_that_is_none(change: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as refused:
        UserChange.model_validate(change)
    assert "xxx" not in str(refused.value)


def test_passwords_are_not_shown() -> None:
    shown = repr(UserChange(password="correct horse", old_password="battery staple", admin=True))
    assert "admin=True" in shown
    assert not any(word in shown for word in ("horse", "staple"))


@pytest.mark.parametrize(("days", "seconds"), [(2.0, 2 * DAY), (None, None)])
def test_how_long_a_token_is_good(days: float | None, seconds: float | None) -> None:
    assert NewToken(name="laptop", days=days).seconds == seconds


def test_a_training_resumption_has_words_of_its_own() -> None:
    found = TrainingResumption.model_validate({"resume_from": "best", "executor": "local"})
    assert (found.checkpoint, found.backend) == ("best", "local")
    with pytest.raises(ValidationError):
        TrainingResumption.model_validate({"checkpoint": "best"})
