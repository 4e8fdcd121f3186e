from __future__ import annotations

import subprocess
import sys

import pytest

import crucible
import crucible.client


@pytest.mark.parametrize("name", sorted(set(crucible.__all__) - {"__version__"}))
def test_every_name_of_the_package_is_there(name: str) -> None:
    assert getattr(crucible, name) is not None
    assert name in dir(crucible)


@pytest.mark.parametrize("name", crucible.client.__all__)
def test_every_name_of_the_client_is_there(name: str) -> None:
    assert getattr(crucible.client, name).__name__ == name


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = crucible.client.nonsense  # type: ignore[attr-defined]


def test_what_a_job_imports_brings_no_client_along() -> None:
    code = "import sys; from crucible import report, should_stop; print('crucible.client' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).strip() == "False"


def test_the_import_path_that_0_1_0_documented_still_works() -> None:
    from crucible.core.offerfilter import OfferFilter

    assert OfferFilter is crucible.client.OfferFilter
