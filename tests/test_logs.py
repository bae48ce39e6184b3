"""Logs: one event is one line, in each form."""

from __future__ import annotations

import io
import logging
import shlex
from collections.abc import Iterator

import msgspec
import pytest

from fusee.errors import ConfigError
from fusee.logs import begin_logging


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(style: str) -> list[str]:
    stream = io.StringIO()
    begin_logging("info", style, stream)
    log = logging.getLogger("fusee.broker.store")
    log.debug("not told")
    log.info("segment %s is full", "0001", extra={"fields": {"bytes": 7, "why": 'a "reason"'}})
    try:
        raise ValueError("two\nlines")  # noqa: TRY301
    except ValueError:
        log.exception("failed")
    return stream.getvalue().splitlines()


def test_json_is_one_object_per_event_also_with_an_exception() -> None:
    first, second = (msgspec.json.decode(line) for line in lines("json"))
    assert first["event"] == "segment 0001 is full"
    assert (first["level"], first["part"], first["bytes"], first["why"]) == ("info", "broker.store", 7, 'a "reason"')
    assert first["time"].endswith("Z")
    assert "ValueError: two\nlines" in second["exception"]


def test_logfmt_quotes_what_has_spaces_and_stays_one_line() -> None:
    first, second = lines("logfmt")
    assert 'event="segment 0001 is full"' in first
    assert "bytes=7" in shlex.split(first)
    assert "\\n" in second


def test_text_is_for_people() -> None:
    assert "INFO fusee.broker.store: segment 0001 is full" in lines("text")[0]


@pytest.mark.parametrize(("level", "style"), [("loud", "text"), ("info", "xml")])
def test_unknown_words_are_refused(level: str, style: str) -> None:
    with pytest.raises(ConfigError, match="is none of"):
        begin_logging(level, style)
