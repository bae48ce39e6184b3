"""The command line of `fusee serve` read without the library of the command line, where it is in its plain form.

That library and what it brings take a third of the start and a fifth of the memory of a server. So what is plain,
`--name VALUE` or `--name=VALUE` with names and values that are right, is read here. Everything else, mistakes and
`--help` among it, is left to the library, which explains itself better.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMMAND: Final = "serve"
DEFAULT_DATA: Final = Path("fusee-data")
BROKERS_MAX: Final = 26
SWITCHES: Final = {"--console": ("with_console", True), "--no-console": ("with_console", False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of the command; its help says what each is for."""

    host: str = "127.0.0.1"
    namesrv_port: int = 9876
    broker_port: int = 10911
    console_port: int = 8080
    console_host: str = "127.0.0.1"
    with_console: bool = True
    password_file: Path | None = None
    pipelines: Path | None = None
    advertise: str | None = None
    data: Path = DEFAULT_DATA
    brokers: int | None = None
    settings: tuple[str, ...] = ()
    log_level: str = "info"
    log_format: str = "text"


def _port(text: str) -> int:
    return _number(text, 0, 65_535)


def _brokers(text: str) -> int:
    return _number(text, 1, BROKERS_MAX)


def _number(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not text.isascii() or not least <= int(text) <= most:
        raise ValueError(text)
    return int(text)


VALUES: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "--host": ("host", str),
    "--namesrv-port": ("namesrv_port", _port),
    "--broker-port": ("broker_port", _port),
    "--console-port": ("console_port", _port),
    "--console-host": ("console_host", str),
    "--password-file": ("password_file", Path),
    "--pipelines": ("pipelines", Path),
    "--advertise": ("advertise", str),
    "--data": ("data", Path),
    "--brokers": ("brokers", _brokers),
    "--set": ("settings", str),
    "--log-level": ("log_level", str),
    "--log-format": ("log_format", str),
}


def serve_options(words: Sequence[str]) -> ServeOptions | None:
    """What these words of the command line ask for; None when they are not a plain `serve`."""
    if not words or words[0] != COMMAND:
        return None
    given: dict[str, Any] = {}
    settings: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word in SWITCHES:
            name, switched = SWITCHES[word]
            given[name] = switched
            continue
        flag, has_value, text = word.partition("=")
        if flag not in VALUES:
            return None
        if not has_value:
            text = next(rest, "-")
        if not text or text.startswith("-"):
            return None
        name, read = VALUES[flag]
        try:
            value = read(text)
        except ValueError:
            return None
        if name == "settings":
            settings.append(value)
        else:
            given[name] = value
    return ServeOptions(**given, settings=tuple(settings))
