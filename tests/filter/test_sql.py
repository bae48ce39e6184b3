"""Expressions are parsed when they first come, and then remembered."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fusee.errors import FilterError
from fusee.filter.sql import REMEMBERED_MAX, _remembered, compile_sql


def test_compile_sql_remembers_expressions_and_failures() -> None:
    assert compile_sql("remembered = 1") is compile_sql("remembered = 1")
    for _ in range(2):
        with pytest.raises(FilterError, match="ends too early"):
            compile_sql("remembered =")
    assert _remembered.cache_info().maxsize == REMEMBERED_MAX


def test_import_of_filter_loads_no_parser() -> None:
    program = (
        "import sys, fusee.filter as f; f.parse_subscription('t', 'A || B'); print('lark' in sys.modules);"
        "f.compile_sql('a = 1'); print('lark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
