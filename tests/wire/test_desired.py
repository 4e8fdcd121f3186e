"""The desired document: what travels of secrets, and what an agent that knows nothing of them makes of it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import fields

import pytest

from crucible.wire.desired import TOO_OLD, Assignment, BadDesired, Desired, decode_desired, encode_desired

PLAIN = Assignment("att-1", "job-1", 0, "s", ("python3", "train.py"))
SECRET = Assignment("att-2", "job-1", 0, "s", ("python3", "train.py"), secrets=("HF_TOKEN",))


@pytest.mark.parametrize("assignment", [PLAIN, SECRET])
def test_a_document_comes_back(assignment: Assignment) -> None:
    desired = Desired("mch-1", 3, (assignment,))
    assert decode_desired(encode_desired(desired)) == desired


def test_without_secrets_the_command_stands_where_every_agent_looks() -> None:
    doc = json.loads(encode_desired(Desired("mch-1", 3, (PLAIN,))))
    assert doc["assignments"][0]["command"] == ["python3", "train.py"]


def test_an_agent_that_knows_no_secrets_runs_nothing_and_says_why() -> None:
    (doc,) = json.loads(encode_desired(Desired("mch-1", 3, (SECRET,))))["assignments"]
    known = {item.name for item in fields(Assignment)} - {"secrets", "guarded"}
    command = {name: value for name, value in doc.items() if name in known}["command"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.strip()) == (78, TOO_OLD)


def test_a_document_of_a_server_that_knows_no_secrets() -> None:
    doc = json.loads(encode_desired(Desired("mch-1", 3, (PLAIN,))))
    for name in ("secrets", "guarded"):
        del doc["assignments"][0][name]
    assert decode_desired(json.dumps(doc).encode()).assignments == (PLAIN,)


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
