"""Everything that reads bytes of strangers, fed with noise, with sound bytes that were damaged, and with made ones.

Each answers, or refuses with the error that it names, and takes no longer than a moment.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.scale import Scale
from tests.wire.valid_archives import ENTRIES, packed

from crucible.agent.checkpoints import formats
from crucible.agent.checkpoints.notes import read_note
from crucible.agent.checkpoints.truncation import why_torn
from crucible.agent.files import read_json
from crucible.agent.host.interruption import _parse_notice as read_notice
from crucible.agent.link.spool import _records as read_spool
from crucible.agent.output.parsing.parser import OutputParser
from crucible.backends.rehearsal.connection import _document as read_provider
from crucible.client.model_plugins.configs import _parse as read_config
from crucible.client.payload.notebook import read_cells, to_script
from crucible.client.request.job_file import parse_job_file
from crucible.client.transport.http import error_from_response
from crucible.control.jobs import listing
from crucible.control.telemetry import log_search
from crucible.control.telemetry.grep import Pattern
from crucible.control.upkeep.restore import BadBackup, read_manifest
from crucible.core.compute.resources import parse_duration, parse_memory
from crucible.core.errors import BadInput, CrucibleError
from crucible.core.job.job_filter import JobFilter
from crucible.core.job.tags import parse_tag
from crucible.server.http.error_handlers import bad_fields
from crucible.server.http.ranges import RangeNotThere, parse_range
from crucible.server.routes.jobs import JobQuery
from crucible.wire.documents import crypto, mailbox
from crucible.wire.documents.desired import Assignment, BadDesired, Desired, decode_desired, encode_desired
from crucible.wire.documents.messages import BadBatch, Batch, Message, MessageKind, decode_batch, encode_batch, sign
from crucible.wire.documents.results import BadResult, Result, decode_result, encode_result
from crucible.wire.files.paths import UnsafePath, safe_name
from crucible.wire.http.client import Response
from crucible.wire.models.options import BadSchema, Option, read_schema
from crucible.wire.models.plugins import Plugin, _describe

KEY = b"k" * 32
MOMENT = 5.0
"""Seconds, on a machine that is busy; a parser that can be slowed down takes minutes."""


def texted(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: parse(data.decode("utf-8", "surrogateescape"))


def cells(data: bytes) -> None:
    to_script(read_cells(data, "a.ipynb"), "a.ipynb")


def documents(data: bytes) -> None:
    """As it is, and rightly signed and encrypted: who has the key may be hostile too."""
    for raw in (data, _encoded(data, encrypted=False), _encoded(data, encrypted=True)):
        for decode in (mailbox.decode_heartbeat, mailbox.decode_control_document):
            try:
                decode(KEY, "host", raw)
            except crypto.BadDocument:
                continue


def _encoded(data: bytes, *, encrypted: bool) -> bytes:
    try:
        doc = json.loads(data)
        name, doc = mailbox.heartbeat_name("host"), doc if isinstance(doc, dict) else {"a": 1}
        return crypto.encode_document(KEY, name, 1, doc, encrypted=encrypted)
    except (ValueError, RecursionError):
        return data


def whole(data: bytes, folder: Path) -> None:
    path = folder / "saved"
    path.write_bytes(data)
    with path.open("rb") as file:
        for name in ("a.pt", "a.npz", "a.npy", "a.safetensors", "a.h5", "a.json", "a.gz", "a.tar", "a.bin"):
            why_torn(file, name)
        for reader in (name for name in dir(formats) if name.startswith("is_")):
            getattr(formats, reader)(file, len(data))


def printed(data: bytes) -> None:
    parser = OutputParser()
    for line in data.decode("utf-8", "replace").splitlines():
        parser.feed(line)


def described(data: bytes) -> None:
    """A plugin's answer: a fault of its own, never one of ours."""

    class Says:
        def call(self, *_: str, seconds: float) -> dict[str, Any]:
            try:
                said = json.loads(data)
            except (ValueError, RecursionError):
                said = {}
            return said if isinstance(said, dict) else {}

    entry = Plugin("m", "a:b", "d", "1", "python")
    found: Any = Says()
    assert _describe(found, entry, 1.0).as_json()


def spooled(data: bytes, folder: Path) -> None:
    path = folder / "1.log"
    path.write_bytes(data)
    list(read_spool(path, 0))
    path.write_bytes(struct.pack(">II", len(data), zlib.crc32(data)) + data)
    list(read_spool(path, 0))


def filed(data: bytes, folder: Path) -> None:
    path = folder / "state.json"
    path.write_bytes(data)
    read_json(path)


def backed_up(data: bytes, folder: Path) -> None:
    path = folder / "backup"
    path.write_bytes(data)
    read_manifest(path)


def filtered(data: bytes) -> None:
    given = json.loads(data)
    if isinstance(given, dict):
        try:
            JobQuery.model_validate(given)
        except ValidationError as error:
            raise bad_fields(error.errors()) from error


def sought(data: bytes) -> None:
    text = data.decode("utf-8", "ignore")[:1000]
    for regex in (True, False):
        Pattern(text, regex=regex, case=False).search(b"some line of output " * 1000, 0)


_NEVER_ASKED = (None, None, None)
"""Where an answer comes from; this one has been read."""


def problem(data: bytes) -> None:
    error = error_from_response(Response(418, "I'm a teapot", {}, *_NEVER_ASKED, data))  # type: ignore[arg-type]
    assert isinstance(error, CrucibleError)
    str(error)


def notebook(*sources: str) -> bytes:
    made = [{"cell_type": "code", "metadata": {}, "source": s, "outputs": [], "execution_count": None} for s in sources]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}).encode()


def zipped(**files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def listing_one_entry(*, version: bytes = b"\x00\x00", flags: bytes = b"\x00\x00", name: bytes = b"a") -> bytes:
    """A zip file that is nothing but the list at its end."""
    entry = b"PK\x01\x02\x00\x00" + version + flags + bytes(18) + struct.pack("<H", len(name)) + bytes(16) + name
    return entry + b"PK\x05\x06" + bytes(8) + struct.pack("<II", len(entry), 0) + bytes(2)


def signed(data: bytes) -> None:
    decode_batch(data, KEY)


def signed_rightly(data: bytes) -> None:
    decode_batch(sign(data, KEY).encode() + b"\n" + data, KEY)


ASSIGNED = Assignment("att-1", "job-1", 0, "s", ("true",))
DESIRED = encode_desired(Desired("mch-1", 3, (ASSIGNED,)))
BATCH = encode_batch(Batch("att-1", 0, (Message(1, MessageKind.NOTE, 1.0, {"text": "hello"}),)), KEY)
MODEL = {
    "model": {
        "metadata": {"name": "M", "version": "1", "description": "", "framework": "", "min_gpu_memory_gb": 1},
        "methods": ["train"],
        "schema": {"rate": Option(float, default=0.1, minimum=0, maximum=1).as_json()},
        "package": None,
    }
}
HUGE_MODEL = json.dumps(MODEL).replace('"default": 0.1', f'"default": {10**400}').encode()
JOB_FILE = b"script: train.py\nargs: [--epochs, 3, 1e3]\nenv: {A: b, C: 007}\nmemory: 4G\ntime: 1h30m\n"


@dataclass(frozen=True)
class Parser:
    name: str
    parse: Callable[..., object]
    refuses: tuple[type[Exception], ...] = ()
    """What it raises for what it does not take; all else is a failure."""
    sound: tuple[bytes, ...] = ()
    corpus: tuple[bytes, ...] = ()
    """Hand-made ones."""
    on_disk: bool = False


DEEP = (b"[" * 50_000, b'{"a":' * 20_000, b"[" * 50_000 + b"]" * 50_000)
JSONS = (
    *DEEP,
    b"1" * 5000,
    b'{"a": NaN}',
    b'"\\ud800"',
    b"null",
    b"[]",
    b"\xff\xfe\x00",
    b'{"v": 1e400}',
    b"\xef\xbb\xbf{}",
)
PARSERS = (
    Parser("batches", signed, (BadBatch,), (BATCH,), (b"", b"\n", *JSONS)),
    Parser("signed batches", signed_rightly, (BadBatch,), (BATCH.partition(b"\n")[2],), JSONS),
    Parser(
        "desired documents",
        decode_desired,
        (BadDesired,),
        (DESIRED,),
        (
            *JSONS,
            DESIRED.replace(b'"data":[]', b'"data":["x"]'),
            DESIRED.replace(b'"resume_from":null', b'"resume_from":"x"'),
            DESIRED.replace(b'"limits":{', b'"limits":[],"l":{'),
            DESIRED.replace(b'"assignments":[', b'"assignments":["x",'),
        ),
    ),
    Parser(
        "documents in a store",
        documents,
        (),
        tuple(crypto.encode_document(KEY, "host", 1, {"a": 1}, encrypted=encrypted) for encrypted in (False, True)),
        (*JSONS, *(b"signed 2 1 " + b"0" * 64 + b"\n" + doc for doc in JSONS), b"0" * 64 + b"\n"),
    ),
    Parser("results", decode_result, (BadResult,), (encode_result(Result("value", {"a": [1, 2.5]})),), JSONS),
    Parser("schemas of options", lambda data: read_schema(json.loads(data)), (BadSchema, ValueError, RecursionError)),
    Parser("answers of plugins", described, (), (json.dumps(MODEL).encode(),), (*JSONS, HUGE_MODEL)),
    Parser(
        "spools", spooled, (), (json.dumps([1, "note", 1.0, {}]).encode(),), (*JSONS, b'[1,"nope",1,{}]'), on_disk=True
    ),
    Parser("state files", filed, (), (b"{}",), JSONS, on_disk=True),
    Parser("notes of checkpoints", read_note, (), (b'{"crucible": 1, "checkpoint": "a", "step": 5}',), JSONS),
    Parser(
        "notices", read_notice, (ValueError, OverflowError, RecursionError), (b'{"action": "x", "seconds": 5}',), JSONS
    ),
    Parser(
        "saved files",
        whole,
        (),
        (packed(ENTRIES), zipped(a=b"x" * 100), b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'shape': (1,)}"),
        on_disk=True,
    ),
    Parser(
        "lines of output",
        printed,
        (),
        (
            b'{"step": 5, "loss": 0.1}',
            b"Epoch 3/10: 40%|####| 4/10 [00:01<00:02, loss=0.5]",
            b"{'loss': 0.5, 'epoch': 1}",
        ),
        (
            b"=" * 100_000,
            b"1," * 50_000,
            b"loss: " * 20_000,
            b"{" * 50_000 + b"}",
            b"epoch " + b"9" * 50_000,
            b"a=1 " * 20_000,
        ),
    ),
    Parser("answers of a provider", read_provider, (ValueError, RecursionError), (b'{"items": []}',), JSONS),
    Parser("problems", problem, (), (b'{"detail": "x", "status": 404, "code": "not_found"}',), JSONS),
    *(
        Parser(
            f"job files in {suffix}",
            texted(lambda text, suffix=suffix: parse_job_file(text, suffix, "job")),  # type: ignore[misc]
            (BadInput,),
            (JOB_FILE if suffix == ".yaml" else b'{"script": "a.py"}' if suffix == ".json" else b'script = "a.py"',),
            (
                *JSONS,
                b"a: &a [*a]\n",
                b"&a {script: *a}\n",
                b"? [a]\n: b\n",
                b"? {a: b}\n: c\n",
                b"script: 2020-13-45\n",
                b"memory: " + b"9" * 5000 + b"\n",
                b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nargs: *c\n",
                b"script: !!python/object/apply:os.system [x]\n",
                b"args: !!binary x\n",
                b"env: !!set {a, b}\n",
                b"<<: {script: a.py}\nargs: [1]\n",
                b"script: a.py\n1: 2\nnull: 3\n",
                b"a = " + b"[" * 20_000,
            ),
        )
        for suffix in (".yaml", ".json", ".toml")
    ),
    Parser("configs", texted(lambda text: read_config(text, ".yaml", "config")), (BadInput,), (b"a: 1\n",), JSONS),
    Parser(
        "notebooks",
        cells,
        (BadInput,),
        (notebook("print(1)", "%%bash\nls", "!pip install x"),),
        (
            *JSONS,
            notebook("%%" + "x" * 10_000),
            notebook("!" * 10_000),
            b'{"nbformat": 3, "worksheets": 1}',
            b'{"nbformat": "4"}',
        ),
    ),
    Parser("cursors of lists", texted(listing.read_cursor), (BadInput,), (listing.write_cursor("job-1").encode(),)),
    Parser(
        "cursors of searches", texted(log_search.read_cursor), (BadInput,), (b"bDE6MTox",), (b"bDE6" + b"OTk5" * 3000,)
    ),
    Parser(
        "filters",
        filtered,
        (BadInput, ValueError, RecursionError),
        (JobFilter(name="a*").model_dump_json().encode(),),
        JSONS,
    ),
    Parser(
        "expressions",
        sought,
        (BadInput,),
        (b"(?i)loss=\\d+",),
        (
            b"(a+)+$",
            b"(((((a{30}){30}){30})))",
            b"x{1000}{1000}",
            b"(?P<a>b)\\1",
            b"(?<=a)b",
            b"[" * 500,
            b"(" * 500,
            b"\\pN" * 200,
            b"a*" * 400,
        ),
    ),
    Parser("ranges", texted(lambda text: parse_range(text, 100)), (RangeNotThere,), (b"bytes=0-5", b"bytes=-5")),
    Parser(
        "sizes",
        texted(parse_memory),
        (BadInput,),
        (b"4G", b"1.5GiB"),
        (b"9" * 5000 + b"G", b"1e400G", b"nanG", b"\xd9\xa3G"),
    ),
    Parser(
        "times", texted(parse_duration), (BadInput,), (b"1h30m",), (b"9" * 5000 + b"h", b"infs", b"nan", b"1h" * 5000)
    ),
    Parser("tags", texted(parse_tag), (BadInput,), (b"a=b",)),
    Parser("names of files", texted(safe_name), (UnsafePath,), (b"a/b",)),
    Parser(
        "backups",
        backed_up,
        (BadBackup,),
        (zipped(**{"manifest.json": b"{}"}),),
        (
            zipped(**{"manifest.json": b"x" * 10**6}),
            zipped(a=b"b"),
            b"PK\x05\x06" + b"\x00" * 18,
            b"PK\x05\x06" + b"\xff" * 18,
            listing_one_entry(version=b"@\x00"),
            listing_one_entry(flags=b"\x00\x08", name=b"\xff"),
        ),
        on_disk=True,
    ),
)


def damaged(sound: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Sound bytes, cut, doubled, or with some of them exchanged."""

    @st.composite
    def strategy(draw: st.DrawFn) -> bytes:
        data = bytearray(draw(st.sampled_from(sound)))
        for _ in range(draw(st.integers(0, 4))):
            at = draw(st.integers(0, len(data)))
            match draw(st.integers(0, 3)):
                case 0:
                    del data[at : at + draw(st.integers(1, 20))]
                case 1:
                    data[at:at] = draw(
                        st.binary(max_size=8) | st.sampled_from([b'"', b"{", b"[", b"\x00", b"-1", b"1e999", b"null"])
                    )
                case 2:
                    data[at:at] = data[at : at + draw(st.integers(1, 200))]
                case _:
                    data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        return bytes(data)

    return strategy()


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.just(10**400)
    | st.just("\ud800")
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=10,
).map(lambda value: json.dumps(value).encode())


def fed(parser: Parser, data: bytes, folder: Path) -> None:
    started = time.process_time()
    with contextlib.suppress(*parser.refuses):
        parser.parse(data, folder) if parser.on_disk else parser.parse(data)
    assert time.process_time() - started < MOMENT, f"{parser.name} took too long"


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_a_parser_answers_or_refuses(parser: Parser, scale: Scale, tmp_path: Path) -> None:
    for data in (*parser.sound, *parser.corpus):
        fed(parser, data, tmp_path)
    kinds = [st.binary(max_size=300), DOCUMENTS, st.text(max_size=100).map(lambda text: text.encode("utf-8", "ignore"))]

    @settings(max_examples=scale.cases * 4, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.one_of(*kinds, *([damaged(parser.sound)] * 2 if parser.sound else ())))
    def feed(data: bytes) -> None:
        fed(parser, data, tmp_path)

    feed()
