"""More archives that are hostile by construction: records that override names, headers that lie, zips, and twins.

Those in REFUSED must be refused. Those in ODD may be: nothing they hold may lead out, run as somebody else or be
anything but a file, a folder or a link that stays inside.
"""

from __future__ import annotations

import gzip
import io
import random
import struct
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable

from tests.wire.hostile import Format, Member, a_file, a_link, built, file_info, info_of
from tests.wire.valid_archives import ENTRIES, packed

Construction = Callable[[random.Random], bytes]
OUT = ("../canary", "/tmp/escaped", "a/../../canary", "..", "../" * 9 + "tmp/escaped")
FORMS: tuple[Format, ...] = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def a_folder(name: str) -> Member:
    return info_of(name, tarfile.DIRTYPE), b""


def a_record(kind: bytes, data: bytes) -> Member:
    info = file_info("././@LongLink", data)
    info.type = kind
    return info, data


def pax(**fields: str) -> bytes:
    """An extended header, each line with its own length in front."""
    lines = b""
    for name, value in fields.items():
        text = f" {name}={value}\n".encode("utf-8", "surrogateescape")
        size = len(text) + len(str(len(text)))
        size += len(str(size)) != len(str(len(text)))
        lines += str(size).encode() + text
    return lines


# What must be refused


def pax_overrides_name(rng: random.Random) -> bytes:
    out = rng.choice(OUT)
    return built(a_record(tarfile.XHDTYPE, pax(path=out)), a_file("good"), form=tarfile.USTAR_FORMAT)


def pax_overrides_link(rng: random.Random) -> bytes:
    record = pax(linkpath=rng.choice(OUT))
    return built(a_record(tarfile.XHDTYPE, record), a_link("l", "good"), form=tarfile.USTAR_FORMAT)


def pax_overrides_size(rng: random.Random) -> bytes:
    """The size in the record counts, and what follows is then no header."""
    size = rng.choice(["0", "1", "511", "999999999999", str(2**63), "-1", "1e3", " 5", "0x10", ""])
    return built(
        a_record(tarfile.XHDTYPE, pax(size=size)),
        a_file("f", b"e" * 2000),
        a_file("../canary"),
        form=tarfile.USTAR_FORMAT,
    )


def pax_for_everybody(rng: random.Random) -> bytes:
    record = pax(path=rng.choice(OUT), linkpath="/etc/passwd", uid="0")
    return built(a_record(tarfile.XGLTYPE, record), a_file("good"), form=tarfile.USTAR_FORMAT)


def gnu_long_name(rng: random.Random) -> bytes:
    name = rng.choice(OUT).encode() + rng.choice([b"", b"\x00", b"\x00x", b"\x00" * 600])
    return built(a_record(tarfile.GNUTYPE_LONGNAME, name), a_file("good"), form=tarfile.GNU_FORMAT)


def gnu_long_link(rng: random.Random) -> bytes:
    target = rng.choice(OUT).encode() + b"\x00"
    return built(a_record(tarfile.GNUTYPE_LONGLINK, target), a_link("l", "good"), form=tarfile.GNU_FORMAT)


def records_of_two_kinds(rng: random.Random) -> bytes:
    """Tools disagree which of the two names counts."""
    records = [
        a_record(tarfile.XHDTYPE, pax(path=rng.choice(OUT))),
        a_record(tarfile.GNUTYPE_LONGNAME, rng.choice(OUT).encode() + b"\x00"),
    ]
    rng.shuffle(records)
    return built(*records, a_file("good"), form=tarfile.GNU_FORMAT)


def record_of_nothing(rng: random.Random) -> bytes:
    kind = rng.choice([tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
    return built(a_file("f"), a_record(kind, pax(path="x")), form=tarfile.GNU_FORMAT)


def folder_over_file(rng: random.Random) -> bytes:
    members = [a_file("f"), a_folder(rng.choice(["f", "f/", "f/x"]))]
    if rng.random() < 0.5:
        members = [a_folder("f"), a_file("f")]
    return built(a_file("other"), *members)


def folder_over_link(rng: random.Random) -> bytes:
    members = [a_link("f", rng.choice(["..", "other", "."])), a_folder("f"), a_file("f/x")]
    rng.shuffle(members)
    return built(a_folder("other"), *members)


def top_again_and_again(rng: random.Random) -> bytes:
    """The folder itself, which makes nothing: it could be named for ever."""
    return built(*[a_folder(rng.choice([".", "./"])) for _ in range(rng.randint(2, 500))], a_file("f"))


def two_archives_in_one(rng: random.Random) -> bytes:
    second = built(a_file(rng.choice(["../canary", "good"])))
    return packed(ENTRIES) + second if rng.random() < 0.5 else built(a_file("f"), end=b"\x00" * 512) + second


def gzip_that_lies(rng: random.Random) -> bytes:
    data = bytearray(packed(ENTRIES))
    data[rng.choice([0, 1, 2, -1, -2, -3, -4, -5, -6, -7, -8])] ^= 1 << rng.randrange(8)
    return bytes(data)


def bomb_of_ratio(rng: random.Random) -> bytes:
    """A few kilobytes that unpack to many megabytes."""
    return built(a_file("zeros", b"\x00" * rng.randint(5_000_000, 20_000_000)))


def bomb_of_links(rng: random.Random) -> bytes:
    return built(*[a_link(f"l{n}", "f") for n in range(rng.randint(101, 400))])


def bomb_of_records(rng: random.Random) -> bytes:
    record = a_record(tarfile.XHDTYPE, pax(path="a" * 1000, comment="c" * 60_000))
    return built(*[record for _ in range(rng.randint(2, 60))], a_file("f"), form=tarfile.USTAR_FORMAT)


def cut_at_a_border(rng: random.Random) -> bytes:
    """At a block, inside a header, inside content, before the end."""
    body = gzip.decompress(built(a_file("a", b"x" * 3000), a_link("l", "a"), a_folder("d"), a_file("d/b")))
    last = len(body) - 1024
    place = rng.choice([n * 512 + rng.choice([0, 1, 100, 257, 511]) for n in range(last // 512)])
    return gzip.compress(body[:place])


def a_zip(rng: random.Random) -> bytes:
    """Of any kind: only tar archives are taken."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name in ("good", rng.choice([*OUT, "C:\\x", "..\\x", "a" * 300])):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = rng.choice([0o100644, 0o104755, 0o120777, 0o020666]) << 16
            archive.writestr(entry, b"../canary" if rng.random() < 0.5 else b"\x00" * 100_000)
    return _zip_lie(bytearray(made.getvalue()), rng)


def _zip_lie(data: bytearray, rng: random.Random) -> bytes:
    """Names that differ in the two headers, sizes of four gigabytes, a cut, or nothing more."""
    lie = rng.randrange(4)
    if lie == 0:
        place = data.rfind(b"good")
        data[place : place + 4] = b"../x"
    elif lie == 1:
        struct.pack_into("<L", data, 22, 0xFFFFFFFF)
    elif lie == 2:
        del data[rng.randrange(1, len(data)) :]
    return bytes(data)


# What may be odd and harmless


def twins_by_case(rng: random.Random) -> bytes:
    """One file where names are told apart by case, the same one where they are not."""
    second = rng.choice([a_file("README"), a_link("README", "x"), a_folder("README"), a_file("README/x")])
    return built(rng.choice([a_file("Readme"), a_link("Readme", "."), a_folder("Readme")]), second)


def twins_by_form(rng: random.Random) -> bytes:
    name = rng.choice(["é", "Å", "각", "ﬁ", "ß"])
    forms = [unicodedata.normalize(form, name) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    first, second = rng.choice(forms), rng.choice(forms)
    return built(a_link(first, "."), a_file(f"{second}/canary") if rng.random() < 0.5 else a_file(second))


def odd_modes(rng: random.Random) -> bytes:
    members = [a_file("f"), a_folder("d"), a_file("d/g"), a_link("l", "f")]
    for info, _ in members:
        info.mode = rng.choice([0, 0o4755, 0o2777, 0o1777, 0o7777, 0o222, 0o100777, 2**20])
        info.uid, info.gid, info.mtime = rng.choice([0, 65535, 2**20]), 0, rng.choice([0, 2**33 - 1, 1])
    return built(*members, form=tarfile.GNU_FORMAT)


def odd_links(rng: random.Random) -> bytes:
    """Links among each other, some of them to nowhere, into circles, or to the folder that they are in."""
    names = [rng.choice(["", "d/", "d/e/"]) + f"l{n}" for n in range(rng.randint(2, 12))]
    targets = [".", "d", "d/e", "l0", "l1", "../l0", "d/l2", "missing", "./d/.", "d/../l1", "e/../../f", "../d/../f"]
    members = [a_link(name, rng.choice(targets)) for name in names]
    members += [a_file("f"), a_folder("d"), a_folder("d/e")]
    rng.shuffle(members)
    return built(*members)


def any_header(rng: random.Random) -> bytes:
    """Noise in one field of a header whose sum is right."""
    body = bytearray(gzip.decompress(built(a_file("first"), a_file("second", b"x" * 600), form=rng.choice(FORMS))))
    start, size = rng.choice(
        [(0, 100), (100, 8), (108, 8), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8), (345, 155)]
    )
    head = bytearray(body[1024:1536])
    noise = (
        rng.randbytes(size) if rng.random() < 0.5 else bytes(rng.choice(b"\x00/.01789\xff\x80 -") for _ in range(size))
    )
    head[start : start + size] = noise
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\x00 ".encode()
    body[1024:1536] = head
    return gzip.compress(bytes(body))


def any_record(rng: random.Random) -> bytes:
    keys = [
        "path",
        "linkpath",
        "size",
        "uid",
        "mtime",
        "comment",
        "SCHILY.xattr.user.x",
        "GNU.sparse.name",
        "hdrcharset",
    ]
    values = ["x", "", "../x", "a/b", "5", "5.5", "-5", "BINARY", "é", "\udcff", "a\x00b", "a\nb", "x" * 500]
    record = pax(**{rng.choice(keys): rng.choice(values) for _ in range(rng.randint(1, 4))})
    member = rng.choice([a_file("f"), a_link("l", "f"), a_folder("d")])
    return built(a_record(tarfile.XHDTYPE, record), member, form=tarfile.USTAR_FORMAT)


def shuffled_blocks(rng: random.Random) -> bytes:
    body = gzip.decompress(packed(ENTRIES))
    blocks = [body[n : n + 512] for n in range(0, len(body), 512)]
    for _ in range(rng.randint(1, 5)):
        first, second = rng.randrange(len(blocks)), rng.randrange(len(blocks))
        blocks[first], blocks[second] = blocks[second], blocks[first]
    return gzip.compress(b"".join(blocks))


REFUSED: list[Construction] = [
    *(pax_overrides_name, pax_overrides_link, pax_overrides_size, pax_for_everybody),
    *(gnu_long_name, gnu_long_link, records_of_two_kinds, record_of_nothing),
    *(folder_over_file, folder_over_link, top_again_and_again, two_archives_in_one, gzip_that_lies),
    *(bomb_of_ratio, bomb_of_links, bomb_of_records, cut_at_a_border, a_zip),
]
ODD: list[Construction] = [twins_by_case, twins_by_form, odd_modes, odd_links, any_header, any_record, shuffled_blocks]
