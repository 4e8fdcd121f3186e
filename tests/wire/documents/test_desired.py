"""The desired document: it comes back as it was, and anything else is refused."""

from __future__ import annotations

import json

import pytest

from crucible.wire.documents.desired import Assignment, BadDesired, Desired, decode_desired, encode_desired

PLAIN = Assignment("att-1", "job-1", 0, "s", ("python3", "train.py"))
SECRET = Assignment("att-2", "job-1", 0, "s", ("python3", "train.py"), secrets=("HF_TOKEN",))
NO_OUTPUTS = Assignment("att-3", "job-1", 0, "s", ("python3", "train.py"), outputs=())


@pytest.mark.parametrize("assignment", [PLAIN, SECRET, NO_OUTPUTS])
def test_a_document_comes_back(assignment: Assignment) -> None:
    desired = Desired("mch-1", 3, (assignment,))
    assert decode_desired(encode_desired(desired)) == desired


def test_a_command_where_version_0_1_0_put_it() -> None:
    """Beside it stood another command, for agents without secrets; orders that hosts wrote down have that form too."""
    doc = json.loads(encode_desired(Desired("mch-1", 3, (SECRET,))))
    doc["assignments"][0].update(command=["/bin/sh", "-c", "exit 78"], guarded=["python3", "train.py"])
    assert decode_desired(json.dumps(doc).encode()).assignments == (SECRET,)


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        (b'"data":[]', b'"data":["x"]'),
        (b'"resume_from":null', b'"resume_from":"x"'),
        (b'"assignments":[', b'"assignments":["x",'),
        (b'{"v":1', b"[" * 50_000 + b'{"v":1'),
    ],
)
def test_a_document_of_another_form_is_refused_as_one(there: bytes, instead: bytes) -> None:
    raw = encode_desired(Desired("m", 1, (Assignment("a", "j", 0, "s", ("true",)),)))
    assert there in raw
    with pytest.raises(BadDesired):
        decode_desired(raw.replace(there, instead))
