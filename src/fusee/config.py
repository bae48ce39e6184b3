"""Settings of a program from defaults, file, environment and flags; each value knows where it came from.

A program declares a frozen dataclass; `load` fills it. Later sources win: defaults < file < environment < flags. A
file is TOML, or RocketMQ's .properties, in which names have Java's spelling (`listenPort`); both spellings are taken
in both. The environment spells `listen_port` as `FUSEE_<PROGRAM>_LISTEN_PORT`. A name that the program does not
know is ignored when it comes from a .properties file (RocketMQ's files carry hundreds) and listed in `ignored`;
anywhere else it is an error, because there it is a typing mistake.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

import msgspec

from fusee.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

C = TypeVar("C")

CONFIG_FILE_SIZE_MAX = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded(Generic[C]):
    """A configuration and the story of its values."""

    value: C
    origins: dict[str, str]
    ignored: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Gathered:
    """Values by setting, of those that some source sets, and the story of all of them."""

    values: dict[str, Any]
    origins: dict[str, str]
    ignored: tuple[str, ...]


def load(
    config_type: type[C],
    *,
    program: str,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded[C]:
    """The configuration of this program. Raises ConfigError naming the setting and where it came from."""
    found = gather(
        types_of(config_type),
        program=program,
        files=() if file is None else (file,),
        environment=environment,
        flags=flags,
    )
    try:
        return Loaded(config_type(**found.values), found.origins, found.ignored)
    except ValueError as error:
        raise ConfigError(f"the configuration of {program} is contradictory: {error}") from error


def types_of(config_type: type) -> dict[str, Any]:
    """Names and types of the settings that a dataclass declares."""
    hints = get_type_hints(config_type)
    return {field.name: hints[field.name] for field in dataclasses.fields(config_type)}


def gather(
    types: Mapping[str, Any],
    *,
    program: str,
    files: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    spelled: Callable[[str], str] | None = None,
) -> Gathered:
    """What files, environment and flags say about settings of these names and types; later ones win.

    `spelled` tells how files spell a name, beside the name itself. Raises ConfigError.
    """
    spell = spelled or camel
    spelling = {spell(name): name for name in types} | {name: name for name in types}
    values: dict[str, Any] = {}
    origins = dict.fromkeys(types, "default")
    ignored: dict[str, None] = {}

    def take(name: str, value: object, origin: str) -> None:
        try:
            values[name] = msgspec.convert(
                value.strip() if isinstance(value, str) else value, types[name], strict=False
            )
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            expected = getattr(types[name], "__name__", str(types[name]))
            raise ConfigError(f"{name} = {value!r} ({origin}) is not a valid {expected}: {error}") from error
        origins[name] = origin

    for file in files:
        settings, strict = read_file(file)
        for key, value in settings.items():
            name = spelling.get(key)
            if name is not None:
                take(name, value, str(file))
            elif strict:
                raise ConfigError(f"{file} sets {key!r}, which {program} does not know; see fusee {program} --help")
            else:
                ignored[key] = None
    prefix = f"FUSEE_{program.upper()}_"
    for variable, text in sorted((environment or {}).items()):
        if variable.startswith(prefix):
            name = variable.removeprefix(prefix).lower()
            if name not in types:
                raise ConfigError(f"environment variable {variable} names no setting of {program}")
            take(name, text, f"environment {variable}")
    for name, value in (flags or {}).items():
        if value is not None:
            take(name, value, "command line")
    return Gathered(values, origins, tuple(ignored))


def read_file(path: Path) -> tuple[dict[str, Any], bool]:
    """(settings, whether unknown names are mistakes) of a TOML or .properties file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"configuration file {path} cannot be read: {error.strerror or error}") from error
    if len(data) > CONFIG_FILE_SIZE_MAX:
        raise ConfigError(f"configuration file {path} has {len(data)} bytes, limit {CONFIG_FILE_SIZE_MAX}")
    try:
        text = data.decode()
        if path.suffix == ".toml":
            return tomllib.loads(text), True
        return dict(parse_properties(text)), False
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"configuration file {path} cannot be understood: {error}") from error


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNIT = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """The entries of a Java .properties text: comments, `=` or `:` or blank, continued lines, escapes."""
    entries: dict[str, str] = {}
    lines = iter(text.splitlines())
    for raw in lines:
        line = raw.lstrip()
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + next(lines, "").lstrip()
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        key, rest = line[:end], line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        entries[_unescape(key)] = _unescape(rest)
    return entries


def format_properties(entries: Mapping[str, str]) -> str:
    """The entries as `key=value` lines that `parse_properties` and Java read back."""

    def escape(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")

    return "".join(f"{escape(key)}={escape(value)}\n" for key, value in entries.items())


def camel(name: str) -> str:
    """Java's spelling of a snake_case name."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _UNIT.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPES.get(m[2], m[2]), text)
