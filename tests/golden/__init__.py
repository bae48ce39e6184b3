"""Bytes captured from Apache RocketMQ 5.5.0, to test against.

`wire/*.jsonl.xz` hold 1575 frames, one JSON object per line and one file per kind of conversation. Headers
and messages in them are as the Java classes decode them. Frames of one exchange share `pair`; a long poll may
have stayed unanswered. Stable are layouts, names, codes, remarks without numbers, bodies; not stable are
timestamps, opaques, ports, ids, and the order of map entries.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WIRE = Path(__file__).parent / "wire"


@dataclass(frozen=True, slots=True)
class GoldenHeader:
    """A command header as Java decodes it; `ext_fields` None is absent, {} is present and empty.

    Java reads an empty value of a binary header as null: such a value is None here.
    """

    code: int
    language: str
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class GoldenFrame:
    """One captured frame and what Java reads from it."""

    file: str
    pair: str
    name: str
    role: Literal["request", "response", "oneway"]
    code: int
    code_name: str | None
    sender: str
    receiver: str
    form: Literal["json", "binary"]
    conversation: Literal["json", "binary-client", "all-binary"]
    at_seconds: float
    header: GoldenHeader
    body_length: int
    frame: bytes
    port: str | None = None
    request_code: int | None = None
    request_code_name: str | None = None
    body: Any = None
    """The body where it is strict JSON."""
    body_text: str | None = None
    """The body where it is text but not strict JSON: FastJSON's dialect, properties, plain message bodies."""
    messages: list[dict[str, Any]] | None = None
    """Records of the body, their own bodies decompressed."""
    batch: list[dict[str, Any]] | None = None
    """Elements of a batch send."""

    @property
    def id(self) -> str:
        """Short and nearly unique: for test parameters and messages."""
        return f"{self.pair}.{self.role}"

    @property
    def body_bytes(self) -> bytes:
        """The raw bytes behind the header."""
        return self.frame[len(self.frame) - self.body_length :]


@cache
def _load(file: str) -> tuple[GoldenFrame, ...]:
    with lzma.open(WIRE / f"{file}.jsonl.xz") as stream:
        return tuple(_read(file, msgspec.json.decode(line)) for line in stream)


def _read(file: str, line: dict[str, Any]) -> GoldenFrame:
    header = line["header"]
    return GoldenFrame(
        file=file,
        pair=line["pair"],
        name=line["name"],
        role=line["role"],
        code=line["code"],
        code_name=line.get("codeName"),
        sender=line["from"],
        receiver=line["to"],
        form=line["form"],
        conversation=line["conversation"],
        at_seconds=line["t"],
        header=GoldenHeader(
            code=header["code"],
            language=header["language"],
            version=header["version"],
            opaque=header["opaque"],
            flag=header["flag"],
            remark=header["remark"],
            ext_fields=header["extFields"],
        ),
        body_length=line["bodyLength"],
        frame=bytes.fromhex(line["frame"]),
        port=line.get("port"),
        request_code=line.get("requestCode"),
        request_code_name=line.get("requestCodeName"),
        body=line.get("body"),
        body_text=line.get("bodyText"),
        messages=line.get("messages"),
        batch=line.get("batch"),
    )


def files() -> list[str]:
    """The kinds of conversation: "admin", "broker", ... "tx"."""
    return sorted(path.name.removesuffix(".jsonl.xz") for path in WIRE.glob("*.jsonl.xz"))


def frames(file: str | None = None) -> Iterator[GoldenFrame]:
    """The frames of one file ("ns", also "ns.jsonl"), or of all files in order. Read once per process."""
    for name in files() if file is None else [file.removesuffix(".jsonl")]:
        yield from _load(name)
