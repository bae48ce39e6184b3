"""The public names of the Python packages, with signatures and docstrings, from the code."""

from __future__ import annotations

import enum
import inspect
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS = ("archive", "audit", "dead_letters", "queries", "rebuild", "replay", "stats", "tables")
MODULES = (
    "fusee",
    "fusee.sync",
    "fusee.cluster",
    "fusee.pipeline",
    *(f"fusee.pipeline.jobs.{job}" for job in JOBS),
    "fusee.errors",
)
LINE_MAX = 90
SHORT = re.compile(r"\b(?:fusee|collections|typing|datetime|pathlib)(?:\.[a-z_]+)*\.(?=[A-Z])")


def python_reference() -> str:
    """The page."""
    lines = [
        "# Python",
        "",
        (
            "Every public name with its signature. What the calls promise: [the Python clients](../clients.md), "
            "[testing](../testing.md), [Spark](../spark.md)."
        ),
        "",
    ]
    for name in MODULES:
        lines += _module(name)
    return "\n".join(lines)


def _module(name: str) -> Iterator[str]:
    module = import_module(name)
    yield from (f"## {name}", "", _text(module), "")
    public = getattr(module, "__all__", None) or [each for each in dir(module) if not each.startswith("_")]
    for each in sorted(public, key=str.lower):
        found = getattr(module, each)
        if name.startswith("fusee.pipeline.jobs.") and getattr(found, "__module__", "") != name:
            continue  # what a job is made of
        if inspect.isclass(found) and found.__module__.startswith("fusee") and not _is_listed(name, found):
            yield from _class(f"{name}.{each}", found)
        elif inspect.isfunction(found) and found.__module__.startswith("fusee"):
            yield from _function(f"{name}.{each}", found, "###")


def _is_listed(name: str, found: type[Any]) -> bool:
    """Whether another section has it: errors stand in their own."""
    is_error = issubclass(found, Exception) and found.__module__ == "fusee.errors"
    return is_error and name != "fusee.errors"


def _class(path: str, found: type[Any]) -> Iterator[str]:
    yield from (f"### {path}", "")
    if issubclass(found, Exception):
        bases = ", ".join(f"`{base.__name__}`" for base in found.__bases__)
        yield from (f"A {bases}.", "", _text(found), "")
        return
    if issubclass(found, enum.Enum):
        yield from (_text(found), "", ", ".join(f"`{member.name}`" for member in found), "")
        return
    yield from ("```python", _signature(path.rpartition(".")[2], found), "```", "", _text(found), "")
    for name, member in _members(found):
        if isinstance(member, property):
            yield from (f"#### {path.rpartition('.')[2]}.{name}", "", _text(member), "")
        else:
            yield from _function(f"{path.rpartition('.')[2]}.{name}", member, "####")


def _members(found: type[Any]) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for base in found.__mro__:
        if not base.__module__.startswith("fusee"):
            continue
        for name, member in vars(base).items():
            plain = inspect.unwrap(member.__func__) if isinstance(member, classmethod | staticmethod) else member
            if name.startswith("_") or name in seen or not (inspect.isfunction(plain) or isinstance(plain, property)):
                continue
            seen.add(name)
            if inspect.getdoc(plain):
                yield name, plain


def _function(path: str, found: Any, heading: str) -> Iterator[str]:
    yield from (f"{heading} {path}", "", "```python", _signature(path.rpartition(".")[2], found), "```", "")
    yield from (_text(found), "")


def _signature(name: str, found: Any) -> str:
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return f"{name}(...)"
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    shown = list(_shown(parameters))
    awaited = "async " if inspect.iscoroutinefunction(found) else ""
    is_told = signature.return_annotation is not inspect.Signature.empty and not inspect.isclass(found)
    arrow = f" -> {_short(signature.return_annotation)}" if is_told else ""
    line = f"{awaited}{name}({', '.join(shown)}){arrow}"
    if len(line) <= LINE_MAX:
        return line
    inner = "".join(f"    {each},\n" for each in shown)
    return f"{awaited}{name}(\n{inner}){arrow}"


def _shown(parameters: list[inspect.Parameter]) -> Iterator[str]:
    is_marked = False
    for each in parameters:
        if each.kind is each.VAR_POSITIONAL:
            is_marked = True
        if each.kind is each.KEYWORD_ONLY and not is_marked:
            is_marked = True
            yield "*"
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        annotation = "" if each.annotation is each.empty else f": {_short(each.annotation)}"
        default = "" if each.default is each.empty else f" = {_value(each.default)}"
        yield f"{stars}{each.name}{annotation}{default}"


def _value(default: object) -> str:
    """A default as a program writes it; what has no such form, by the name of its type."""
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    text = repr(default)
    return getattr(default, "__name__", f"{type(default).__name__}(...)") if text.startswith("<") else text


def _short(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return SHORT.sub("", text)


def _text(found: Any) -> str:
    """The docstring: its indented blocks are code in Markdown, too."""
    return inspect.getdoc(found) or ""
