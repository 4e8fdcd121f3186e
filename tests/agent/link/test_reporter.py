from __future__ import annotations

from pathlib import Path

import pytest

from crucible.agent.link.reporter import NOTE_LENGTH, Reporter
from crucible.agent.link.spool import Spool
from crucible.agent.output.redaction import Redactor
from crucible.wire.documents.messages import MessageKind

VALUE = "s3cr3t-value"


@pytest.fixture
def voice(tmp_path: Path) -> Reporter:
    voice = Reporter(Spool(tmp_path / "spool"), lambda: None)
    voice.redactor = Redactor([VALUE, "file", "step"])
    return voice


def said(voice: Reporter) -> list[dict[str, object]]:
    return [dict(message.data) for message in voice._spool.all_messages()]


def test_what_came_from_the_job_is_made_clean(voice: Reporter) -> None:
    voice.send(MessageKind.STARTED, {"pid": 7, "command": ["run", f"--key={VALUE}"], "packages": [f"{VALUE}==1"]})
    voice.send(MessageKind.POINTS, {"series": {VALUE: [[1, 0.5, 2.0]]}})
    voice.send(MessageKind.EXITED, {"code": 1, "text": f"cannot run '{VALUE}'"})
    assert said(voice) == [
        {"pid": 7, "command": ["run", "--key=***"], "packages": ["***==1"]},
        {"series": {"***": [[1, 0.5, 2.0]]}},
        {"code": 1, "text": "cannot run '***'"},
    ]


def test_the_words_of_the_protocol_stay_whatever_the_secrets_are(voice: Reporter) -> None:
    checkpoint = {"name": "a.pt", "form": "file", "size": 1, "sha256": "0" * 64, "step": 3}
    voice.send(MessageKind.CHECKPOINT, checkpoint)
    assert said(voice) == [checkpoint]


@pytest.mark.parametrize("before", [NOTE_LENGTH - 5, NOTE_LENGTH - 2, 10])
def test_a_note_that_is_cut_holds_no_half_of_a_secret(voice: Reporter, before: int) -> None:
    voice.note("x" * before + VALUE)
    voice.staging("x" * before + VALUE)
    assert "s3cr" not in str(said(voice))


def test_without_a_redactor_all_is_said_as_it_is(tmp_path: Path) -> None:
    voice = Reporter(Spool(tmp_path / "spool"), lambda: None)
    voice.note(VALUE)
    assert said(voice) == [{"text": VALUE}]
