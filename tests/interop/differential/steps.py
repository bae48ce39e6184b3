"""The words a script is written in: steps with a name, what they send, and what they remember for later ones.

A script is data: a list of steps, the same for every broker. What differs between two brokers in spite of that (where
a record lies in the log, ports, times) is remembered per broker in a `Memory` and used by later steps as
`kept("name")`. A step that needs something that an earlier answer did not give is not asked, which shows as its
outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from fusee.message.ids import decode_offset_id
from fusee.wire.codes import LanguageCode
from fusee.wire.command import PROTOCOL_VERSION, Command
from fusee.wire.lenient_json import loads

ADMIN: Final = "admin"
ANSWER_TIMEOUT_S: Final = 20.0
# Long enough for any broker to answer if it were going to, short enough to be waited for now and then.
SILENCE_S: Final = 0.7


class NotRememberedError(KeyError):
    """An earlier step did not give what this one needs."""


class Memory(dict[str, Any]):
    """What the answers of one broker have given so far."""

    def __missing__(self, name: str) -> Any:
        raise NotRememberedError(name)


Value: TypeAlias = "str | int | bool | Callable[[Memory], str | int] | None"
Fields: TypeAlias = Mapping[str, Value]
Body: TypeAlias = "bytes | Callable[[Memory], bytes]"
Outcome: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is sent, as raw as possible: names and texts, so that wrong ones can be sent too."""

    code: int
    fields: Fields = field(default_factory=dict)
    body: Body = b""
    version: int = PROTOCOL_VERSION
    language: LanguageCode = LanguageCode.JAVA

    def command(self, memory: Memory) -> Command:
        fields = {name: _text(value, memory) for name, value in self.fields.items() if value is not None}
        body = self.body if isinstance(self.body, bytes) else self.body(memory)
        return Command(self.code, ext_fields=fields, body=body, version=self.version, language=self.language)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One act on one connection (`via`); the name is unique in the script."""

    name: str
    via: str = ADMIN


@dataclass(frozen=True, kw_only=True)
class Ask(Step):
    """Sends and waits for the answer.

    `until` asks again until the answer is as wanted, for what a broker does in its own time. `keep` remembers what
    functions find in the answer. `view` is what of the masked answer is compared. `silent` expects that no answer
    comes.
    """

    request: Request
    until: Callable[[Command], bool] | None = None
    keep: Mapping[str, Callable[[Command], Any]] = field(default_factory=dict)
    view: Callable[[Outcome], Any] | None = None
    silent: bool = False


@dataclass(frozen=True, kw_only=True)
class Tell(Step):
    """Sends without wanting an answer (oneway)."""

    request: Request


@dataclass(frozen=True, kw_only=True)
class Begin(Step):
    """Sends and goes on; a `Finish` with the name of this step waits for the answer."""

    request: Request


@dataclass(frozen=True, kw_only=True)
class Finish(Step):
    """Waits for the answer to what a `Begin` sent."""

    begun: str


@dataclass(frozen=True, kw_only=True)
class Pushed(Step):
    """Waits for a request of the broker to the client on this connection, which answers as a client would."""

    code: int
    keep: Mapping[str, Callable[[Command], Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HangUp(Step):
    """Closes the connection; the next step on it opens a new one."""


def chapter(title: str, *steps: Step | list[Step]) -> list[Step]:
    """Steps named after their chapter: `title/name`."""
    flat = [step for part in steps for step in (part if isinstance(part, list) else [part])]
    return [replace(step, name=f"{title}/{step.name}") for step in flat]


def kept(name: str) -> Callable[[Memory], Any]:
    """What an earlier answer gave."""
    return lambda memory: memory[name]


def _text(value: Value, memory: Memory) -> str:
    if callable(value):
        value = value(memory)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# What steps remember of answers, and wait for in them


def log_offset_in_id(answer: Command) -> int:
    """Where a message was stored, as its (first) id says."""
    return decode_offset_id(answer.all_fields()["msgId"].split(",")[0]).log_offset


def message_id(answer: Command) -> str:
    return answer.all_fields()["msgId"]


def ext_field(name: str) -> Callable[[Command], str]:
    return lambda answer: answer.all_fields()[name]


def in_body(*path: str) -> Callable[[Command], Any]:
    """What lies at this path of a JSON body."""

    def find(answer: Command) -> Any:
        value = loads(answer.body)
        for key in path:
            value = value[key]
        return value

    return find


def has_field(name: str, value: str) -> Callable[[Command], bool]:
    return lambda answer: answer.all_fields().get(name) == value


def has_code(code: int) -> Callable[[Command], bool]:
    return lambda answer: answer.code == code


# What of an outcome is compared, where not all of it can be


def only_code(outcome: Outcome) -> Outcome:
    return {"code": outcome["code"]} if "code" in outcome else outcome


def without_body(outcome: Outcome) -> Outcome:
    return {key: value for key, value in outcome.items() if key != "body"}


def only_keys(*path: str) -> Callable[[Outcome], Outcome]:
    """The body is reduced to the names in the table at this path."""

    def view(outcome: Outcome) -> Outcome:
        table = _at(outcome, path)
        return {**without_body(outcome), "names": sorted(table) if isinstance(table, dict) else table}

    return view


def only_entries(*names: str, path: tuple[str, ...] = ()) -> Callable[[Outcome], Outcome]:
    """The body is reduced to these entries of the table at this path."""

    def view(outcome: Outcome) -> Outcome:
        table = _at(outcome, path)
        found = {name: table.get(name) for name in names} if isinstance(table, dict) else table
        return {**without_body(outcome), "entries": found}

    return view


def _at(outcome: Outcome, path: tuple[str, ...]) -> Any:
    value = outcome.get("body")
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
