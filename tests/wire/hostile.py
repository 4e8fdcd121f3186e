"""Archives that are hostile by construction: each function makes many, all of which must be refused."""

from __future__ import annotations

import gzip
import random
import tarfile
from collections.abc import Callable
from typing import Literal

from tests.wire.valid_archives import ENTRIES, packed

Format = Literal[0, 1, 2]
Member = tuple[tarfile.TarInfo, bytes]


def info_of(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def file_info(name: str, data: bytes) -> tarfile.TarInfo:
    info = info_of(name)
    info.size = len(data)
    return info


def built(*members: Member, form: Format = tarfile.PAX_FORMAT, end: bytes = b"\x00" * 1024) -> bytes:
    """An archive of these members as they are, with nothing checked."""
    body = bytearray()
    for info, data in members:
        body += info.tobuf(form, "utf-8", "surrogateescape") + data + b"\x00" * (-len(data) % 512)
    return gzip.compress(bytes(body) + end)


def a_file(name: str, data: bytes = b"evil") -> Member:
    return file_info(name, data), data


def a_link(name: str, target: str) -> Member:
    return info_of(name, tarfile.SYMTYPE, target), b""


def traversal(rng: random.Random) -> bytes:
    up = "/".join([".."] * rng.randint(1, 6))
    head = rng.choice(["", "a/", "a/b/", "a/../"])
    return built(a_file("good"), a_file(f"{head}{up}/escaped{rng.randint(0, 9)}"), form=rng.choice([0, 1, 2]))


def absolute(rng: random.Random) -> bytes:
    return built(a_file(rng.choice(["/tmp/escaped", "//tmp/escaped", "/../x", "C:/x", "c:x", "/"])))


def link_out(rng: random.Random) -> bytes:
    target = rng.choice(["/etc/passwd", "..", "../canary", "../../x", "a/../../canary", "/", "", "a\\b"])
    return built(a_file("a/good"), a_link(rng.choice(["l", "m"]), target), form=rng.choice([1, 2]))


def link_out_by_others(rng: random.Random) -> bytes:
    """Each link looks harmless; followed through each other they end outside."""
    links = [a_link("here", "."), a_link("l", "here/" * rng.randint(1, 3) + "../canary"), a_file("f")]
    rng.shuffle(links)
    return built(*links)


def deep_link_chain(rng: random.Random) -> bytes:
    count = rng.randint(50, 150)
    chain = [a_link(f"l{n}", f"l{n + 1}") for n in range(count)]
    end = rng.choice([a_link(f"l{count}", "l0"), a_link(f"l{count}", "missing"), a_file(f"l{count}")])
    return built(*chain, end)


def write_through_link(rng: random.Random) -> bytes:
    target = rng.choice(["..", "/tmp", "sub", ".", "../outer"])
    below = rng.choice([a_file("d/canary"), a_link("d/x", "y"), (info_of("d/x", tarfile.DIRTYPE), b"")])
    members = [(info_of("sub", tarfile.DIRTYPE), b""), a_link("d", target), below]
    return built(*members) if rng.random() < 0.7 else built(*reversed(members))


def write_onto_link(rng: random.Random) -> bytes:
    members = [a_link("f", rng.choice(["../canary", "g"])), a_file("f")]
    rng.shuffle(members)
    return built(*members)


def hard_link(rng: random.Random) -> bytes:
    target = rng.choice(["/etc/passwd", "../canary", "good"])
    return built(a_file("good"), (info_of("h", tarfile.LNKTYPE, target), b""))


def device(rng: random.Random) -> bytes:
    kinds = [
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CONTTYPE,
        tarfile.GNUTYPE_SPARSE,
        b"9",
    ]
    info = info_of("dev", rng.choice([*kinds, tarfile.XGLTYPE]))
    info.devmajor, info.devminor = 1, 3
    return built((info, b""), form=tarfile.GNU_FORMAT)


def duplicate(rng: random.Random) -> bytes:
    twice = rng.choice([a_file("f"), a_link("f", "g"), (info_of("f", tarfile.DIRTYPE), b"")])
    return built(rng.choice([a_file("f"), twice]), a_file("other"), twice if twice[0].isdir() else a_file("f"))


def file_as_folder(rng: random.Random) -> bytes:
    return built(a_file("f"), rng.choice([a_file("f/x"), a_link("f/x", "y"), a_file("f/x/y/z")]))


def odd_name(rng: random.Random) -> bytes:
    names = [
        "a\\..\\x",
        "a\nb",
        "\x1b[2J",
        "a//b",
        "a/./b",
        ".//a",
        ".",
        "x" * 300,
        "y/" * 600 + "z",
        "\udcff\udcfe",
        "a\x7f",
    ]
    name = rng.choice(names)
    form: Format = tarfile.GNU_FORMAT if "\udcff" in name else rng.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    return built(a_file(name), form=form)


def nul_in_name(rng: random.Random) -> bytes:
    info = file_info("f", b"evil")
    info.pax_headers = {"path": f"a\x00{rng.randint(0, 99)}"}
    return built((info, b"evil"))


def name_record(rng: random.Random) -> bytes:
    """A POSIX or GNU name record that is broken, huge, doubled, or names a sparse file."""
    record = rng.choice(
        [
            b"99 path=x\n",
            b"path=x\n",
            b"9 path=x",
            b"-1 path=x\n",
            b"0 a=b\n",
            b"9 path\xff\n",
            b"9999999999999 a=b\n",
            b"22 GNU.sparse.major=1\n",
            b"\xff\xfe",
            b"12 size=-9\n",
            b"13 size=abc\n",
        ]
    )
    kind = tarfile.XHDTYPE
    if rng.random() < 0.3:
        record, kind = b"a" * 70_000, rng.choice([tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
    head = file_info("././@PaxHeader", record)
    head.type = kind
    doubled = [(head, record)] * rng.choice([1, 2])
    return built(*doubled, a_file("f"), form=tarfile.USTAR_FORMAT)


def bomb_of_bytes(rng: random.Random) -> bytes:
    return built(*[a_file(f"f{n}", b"\x00" * 600_000) for n in range(rng.randint(2, 4))])


def bomb_of_files(rng: random.Random) -> bytes:
    return built(*[a_file(f"f{n}", b"") for n in range(rng.randint(101, 300))])


def bomb_of_folders(rng: random.Random) -> bytes:
    return built(a_file("d/" * rng.randint(101, 400) + "f", b""))


def bomb_after_the_end(rng: random.Random) -> bytes:
    return built(a_file("f"), end=b"\x00" * 3_000_000 if rng.random() < 0.5 else b"\x00" * 1024 + b"more")


def lying_size(rng: random.Random) -> bytes:
    info = info_of("f")
    info.size = rng.choice([10**6, 2**40, 2**62, -1, -(2**40), 1500])
    return built((info, b"short"), form=tarfile.GNU_FORMAT)


def content_of_no_file(rng: random.Random) -> bytes:
    info = info_of("d", rng.choice([tarfile.DIRTYPE, tarfile.SYMTYPE]), "x")
    info.size = 512
    return built((info, b"e" * 512), a_file("../canary"))


def truncated(rng: random.Random) -> bytes:
    data = packed(ENTRIES)
    return data[: rng.randint(0, len(data) - 1)]


def broken_header(rng: random.Random) -> bytes:
    body = bytearray(gzip.decompress(built(a_file("first"), a_file("second"))))
    place = rng.choice([n for n in range(300) if not 148 <= n < 156])  # bytes of the sum itself may not count
    body[1024 + place] ^= 0x55
    return gzip.compress(bytes(body))


def no_archive(rng: random.Random) -> bytes:
    noise = rng.randbytes(rng.randint(0, 2000))
    return rng.choice([noise, gzip.compress(noise + b"x"), packed(ENTRIES) + b"trailing", b"\x1f\x8b" + noise])


HOSTILE: list[Callable[[random.Random], bytes]] = [
    *(traversal, absolute, odd_name, nul_in_name, name_record, duplicate, file_as_folder, hard_link, device),
    *(link_out, link_out_by_others, deep_link_chain, write_through_link, write_onto_link),
    *(bomb_of_bytes, bomb_of_files, bomb_of_folders, bomb_after_the_end),
    *(lying_size, content_of_no_file, truncated, broken_header, no_archive),
]
