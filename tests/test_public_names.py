"""What `import fusee` gives: every public name is there, documented and typed, and a type checker sees the same."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fusee
from fusee import errors
from fusee.errors import FuseeError

SOURCE = Path(fusee.__file__)
CLASSES = [value for name in fusee.__all__ if inspect.isclass(value := getattr(fusee, name))]
# Only a broker's own parts raise these.
INTERNAL_ERRORS = {
    "DivergedError",
    "FieldError",
    "FrameTooLargeError",
    "StoreBusyError",
    "StoreCorruptError",
    "StoreFailedError",
    "StoreFullError",
    "TooFewReplicasError",
}


def calls_of(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class of ours defines."""
    for base in kind.__mro__:
        if not base.__module__.startswith("fusee"):
            continue
        for name, value in vars(base).items():
            if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                yield name, value.fget if isinstance(value, property) else value


def test_names_when_listed_are_sorted_and_lead_somewhere() -> None:
    assert fusee.__all__ == sorted(fusee.__all__, key=lambda name: (not name[0].isupper(), name))
    assert set(fusee.__all__) == {*fusee._HOMES, "__version__", "sync"}
    assert set(fusee.__all__) <= set(dir(fusee))


def test_names_when_a_type_checker_looks_are_the_same() -> None:
    tree = ast.parse(SOURCE.read_text())
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.asname: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported.pop("sync") == "fusee"
    assert imported == fusee._HOMES
    assert (SOURCE.parent / "py.typed").exists()


def test_errors_when_a_client_may_raise_them_can_be_named() -> None:
    kinds = {name for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, FuseeError)}
    assert kinds - set(fusee.__all__) == INTERNAL_ERRORS


def test_name_when_unknown_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Producr'"):
        fusee.Producr  # noqa: B018


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_class_when_public_is_documented_with_all_its_calls(kind: type[Any]) -> None:
    assert kind.__doc__
    silent = [name for name, call in calls_of(kind) if not inspect.getdoc(call) and not issubclass(kind, Exception)]
    if getattr(kind, "_is_protocol", False):
        silent = []  # the protocol itself says when its calls are made
    assert not silent


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_class_when_public_is_typed_in_all_its_calls(kind: type[Any]) -> None:
    untyped = [
        name
        for name, call in calls_of(kind)
        if "return" not in call.__annotations__
        or any(
            parameter.annotation is inspect.Parameter.empty
            for parameter in list(inspect.signature(call).parameters.values())[1:]
        )
    ]
    assert not untyped


def test_import_when_nothing_is_used_loads_no_client() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import sys, fusee; print([name for name in sys.modules if name.startswith('fusee.')])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "['fusee.compiled']"  # which finds compiled modules, and must come first
