"""The header classes of release 5.5.0 as `javap` shows them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec


class JavaHeader(msgspec.Struct, frozen=True):
    """One class; a field is (type, has @CFNotNull)."""

    extends: str | None
    fields: dict[str, tuple[str, bool]]


@cache
def java_headers() -> dict[str, JavaHeader]:
    """By simple class name."""
    path = Path(__file__).parent / "java_headers.json"
    return msgspec.json.decode(path.read_bytes(), type=dict[str, JavaHeader])


def all_fields(name: str) -> dict[str, tuple[str, bool]]:
    """The fields of a class and of those above it: what becomes ext fields."""
    header = java_headers()[name]
    above = all_fields(header.extends) if header.extends in java_headers() else {}
    return {**above, **header.fields}
