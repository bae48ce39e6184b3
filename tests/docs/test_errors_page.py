"""The page of errors quotes what programs say: each quotation is in the source, in the words that it has there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import fusee
from fusee.wire.codes import ResponseCode

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text()
HEADINGS = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
QUOTED = [text for heading in HEADINGS for text in re.findall(r"`([^`]+)`", heading)]


@cache
def said() -> str:
    """Every text of the source, one a line, with a mark where a value goes in."""
    lines = []
    for path in (ROOT / "src" / "fusee").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                lines.append("".join(str(part) for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                lines.append(node.value)
    return "\n".join(lines)


@pytest.mark.parametrize("text", QUOTED)
def test_quotation_is_in_the_source(text: str) -> None:
    if re.fullmatch(r"[A-Z_]+", text):
        assert text in ResponseCode.__members__
    elif re.fullmatch(r"\w+Error", text):
        assert hasattr(fusee, text) or text in said() or f"class {text}" in _sources()
    else:
        for piece in text.split("…"):
            assert piece.strip() in said(), text


@cache
def _sources() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "src" / "fusee").rglob("*.py"))


def test_codes_of_the_page_have_the_names_that_it_gives() -> None:
    for code, name in re.findall(r"[Cc]ode (\d+), `([A-Z_]+)`", PAGE):
        assert ResponseCode[name] == int(code)
