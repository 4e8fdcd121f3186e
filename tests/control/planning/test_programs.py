"""The texts of a bundle that say what its program does."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest

from crucible.control.planning import programs
from crucible.control.planning.programs import read_program
from crucible.core.routing.plan_request import MAX_FILE
from crucible.wire.files.archive import Entry, Folder, Link, pack
from crucible.wire.files.tar_stream import BadArchive

RUN = ("{python}", "train.py", "--epochs", "3")


def bundle(*entries: Entry, **files: bytes) -> bytes:
    packed = io.BytesIO()
    named = (Entry.of_bytes(name.replace("__", "/").replace("_", "."), data) for name, data in files.items())
    pack([*entries, *named], packed)
    return packed.getvalue()


def pieces(data: bytes, size: int = 7) -> Iterator[bytes]:
    """With one that is empty, as a store may hand them on."""
    yield b""
    for at in range(0, len(data), size):
        yield data[at : at + size]


def test_the_program_and_what_it_reads() -> None:
    held = bundle(
        Entry("empty", Folder()),
        Entry("link.py", Link("train.py")),
        train_py=b"import model",
        lib__model_py=b"x = 1",
        config_yaml=b"epochs: 3",
        weights_bin=os.urandom(100_000),
    )
    assert read_program(pieces(held, 1000), RUN) == {
        "train.py": "import model",
        "lib/model.py": "x = 1",
        "config.yaml": "epochs: 3",
    }


def test_a_command_that_starts_none_of_them() -> None:
    held = bundle(train_py=b"x = 1", run_sh=b"python train.py")
    assert read_program(pieces(held), ("/bin/sh", "run.sh")) is None
    assert read_program(pieces(bundle(data_csv=b"1,2")), RUN) is None


def test_the_one_that_is_started_is_there_however_many_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAX_FILES", 3)
    found = read_program(pieces(bundle(a_py=b"1", b_py=b"2", c_py=b"3", train_py=b"4", u_py=b"5")), RUN)
    assert found == {"a.py": "1", "b.py": "2", "train.py": "4"}
    monkeypatch.setattr(programs, "MOST", 3)
    found = read_program(pieces(bundle(a_py=b"12", b_py=b"34", train_py=b"56789")), RUN)
    assert found == {"a.py": "12", "train.py": "56789"}


def test_files_that_are_no_text_of_a_program() -> None:
    found = read_program(pieces(bundle(train_py=b"\xff\xfe", huge_json=b"1" * (MAX_FILE + 1)), 9999), RUN)
    assert found == {"train.py": "\ufffd\ufffd"}


def test_what_is_in_a_bundle_is_looked_through_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAX_UNPACKED", 1000)
    assert read_program(pieces(bundle(a_bin=b"x" * 2000, train_py=b"1")), RUN) is None


@pytest.mark.parametrize("data", [b"", b"no archive", bundle(train_py=b"1")[:60]])
def test_what_is_no_bundle(data: bytes) -> None:
    with pytest.raises(BadArchive):
        read_program(pieces(data), RUN)
