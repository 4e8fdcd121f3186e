from __future__ import annotations

import pytest

from crucible.core.errors import BadInput
from crucible.core.people.project_secrets import (
    LONGEST_SECRET,
    MAX_SECRET_NAME,
    missing_secret,
    validate_secret_name,
    validate_secret_value,
)


@pytest.mark.parametrize("name", ["HF_TOKEN", "_x", "aws.key-2", "a" * MAX_SECRET_NAME])
def test_names_that_secrets_have(name: str) -> None:
    assert validate_secret_name(name) == name


@pytest.mark.parametrize("name", ["", "1st", "a b", "a/b", "a=b", "ä", "a\n", "a" * (MAX_SECRET_NAME + 1)])
def test_names_that_secrets_cannot_have(name: str) -> None:
    with pytest.raises(BadInput, match="is not a valid secret name"):
        validate_secret_name(name)


@pytest.mark.parametrize("value", ["abcd", "ä" * 2, "x" * LONGEST_SECRET, "two\nlines"])
def test_values_that_can_be_kept(value: str) -> None:
    assert validate_secret_value(value) == value


@pytest.mark.parametrize("value", ["", "abc", "x" * (LONGEST_SECRET + 1), "with\0nul", "\ud800lone"])
def test_values_that_cannot_are_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(BadInput) as caught:
        validate_secret_value(value)
    assert caught.value.fix
    assert not value or value not in str(caught.value)


def test_one_that_is_missing_says_how_to_set_it() -> None:
    assert "crucible secrets set HF_TOKEN --project vision" in missing_secret("HF_TOKEN", "vision").fix
