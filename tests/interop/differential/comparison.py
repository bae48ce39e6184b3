"""Where two outcomes differ, as paths that a person can read and a table can name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.interop.differential.masking import EXCEPTION, FORGOTTEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Deviation:
    """One place of one step where ours is not theirs."""

    step: str
    path: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.step}\n    {self.path}: ours {self.ours!r}, theirs {self.theirs!r}"


_ABSENT = "<absent>"


def deviations(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[Deviation]:
    """Every difference between the outcomes of the same script, by step."""
    found: list[Deviation] = []
    for step in theirs:
        pairs = _compare("", ours.get(step, _ABSENT), theirs[step])
        found += [Deviation(step, path or ".", mine, other) for path, mine, other in pairs]
    return found


def _compare(path: str, ours: Any, theirs: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            inner = f"{path}.{key}" if path else key
            yield from _compare(inner, ours.get(key, _ABSENT), theirs.get(key, _ABSENT))
    elif _are_names(ours) and _are_names(theirs):
        for name in sorted({*ours, *theirs}):
            mine, other = (name if name in names else _ABSENT for names in (ours, theirs))
            yield from _compare(f"{path}[{name}]", mine, other)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _compare(f"{path}[{index}]", mine, other)
    elif ours != theirs and not _is_told_otherwise(path, ours, theirs):
        yield path, ours, theirs


def _are_names(value: Any) -> bool:
    """Whether this is a list of texts, each of them once."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value) and len(set(value)) == len(value)


def _is_told_otherwise(path: str, ours: Any, theirs: Any) -> bool:
    """Java names an exception and a line of its code; any words that say what is wrong are as good.

    Where Java forgot to say what is wrong, anything is.
    """
    if path != "remark":
        return False
    return theirs == FORGOTTEN or (theirs == EXCEPTION and isinstance(ours, str) and ours != _ABSENT)
