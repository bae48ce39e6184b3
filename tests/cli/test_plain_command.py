"""A plain `fusee serve` is read as the library of the command line reads it; the rest is left to that library."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.cli.plain_command import SWITCHES, VALUES, ServeOptions, serve_options
from fusee.cli.tree import _loaded

PORTS = st.integers(0, 65_535).map(str)
WORDS = st.text("abc./=: ", min_size=1, max_size=8)
BY_FLAG = {
    **dict.fromkeys(VALUES, WORDS),
    **{flag: PORTS for flag in VALUES if flag.endswith("-port")},
    "--brokers": st.integers(1, 26).map(str),
}
OPTION = st.sampled_from(sorted(VALUES)).flatmap(
    lambda flag: st.tuples(BY_FLAG[flag], st.booleans()).map(
        lambda found: [f"{flag}={found[0]}"] if found[1] else [flag, found[0]]
    )
)
SWITCH = st.sampled_from(sorted(SWITCHES)).map(lambda word: [word])


def by_the_library(words: list[str]) -> dict[str, Any]:
    """The parameters of the command, as the library gives them to its function."""
    command = _loaded("serve")
    found: dict[str, Any] = command.make_context("serve", words).params
    return found | {"settings": tuple(found["settings"] or ())}


def test_every_option_of_the_command_has_a_plain_form() -> None:
    parameters = [each for each in _loaded("serve").params if each.name != "help"]
    flags = {flag for each in parameters for flag in (*each.opts, *each.secondary_opts)}
    assert flags == {*VALUES, *SWITCHES}
    names = {name for name, _ in [*VALUES.values(), *SWITCHES.values()]}
    assert names == set(asdict(ServeOptions())) == {each.name for each in parameters}


@given(st.lists(st.one_of(OPTION, SWITCH), max_size=6).map(lambda found: [word for each in found for word in each]))
def test_plain_words_mean_what_the_library_says(words: list[str]) -> None:
    options = serve_options(["serve", *words])
    assert options is not None
    assert asdict(options) == by_the_library(words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["topic", "list"],
        ["--version"],
        ["serve", "--help"],
        ["serve", "-h"],
        ["serve", "more"],
        ["serve", "--data"],
        ["serve", "--data", "--console"],
        ["serve", "--data="],
        ["serve", "--broker-port", "-1"],
        ["serve", "--broker-port", "65536"],
        ["serve", "--broker-port", "٣"],
        ["serve", "--brokers", "0"],
        ["serve", "--brokers", "27"],
        ["serve", "--nonsense", "1"],
        ["serve", "--console=yes"],
    ],
)
def test_everything_else_is_left_to_the_library(words: list[str]) -> None:
    assert serve_options(words) is None


def test_defaults() -> None:
    assert serve_options(["serve"]) == ServeOptions()
    assert ServeOptions().data == Path("fusee-data")
