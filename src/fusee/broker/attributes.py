"""Attributes of topics and groups: which there are, what they hold, how a request alters them (Java: AttributeUtil).

A request names alterations, `+key=value` to set and `-key` to take away; a table keeps plain keys. While a topic or
group is made only `+` is allowed. Some attributes decide how files are laid out and can only be given then.

The texts of the errors are those that Java 5.5.0 answers, because administrators' tools show them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fusee.errors import FieldError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,40}").fullmatch


class InvalidAttributeError(FieldError):
    """An attribute that does not exist, cannot be changed, or cannot hold this value."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """What is known of one key."""

    check: Callable[[str], None]
    """Raises InvalidAttributeError for a value that the attribute cannot hold."""
    default: str | None = None
    is_changeable: bool = True


def _one_of(*values: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in values:
            raise InvalidAttributeError(f"value is not in set: [{', '.join(values)}]")

    return check


def _between(least: int, most: int) -> Callable[[str], None]:
    def check(value: str) -> None:
        # int() would also take blanks, underscores and digits without end.
        number = int(value) if _NUMBER(value) else None
        if number is None or not _INT64_MIN <= number <= _INT64_MAX:
            raise InvalidAttributeError(f'For input string: "{value}"')
        if not least <= number <= most:
            raise InvalidAttributeError(f"value is not in range({least}, {most})")

    return check


def _true_or_false(value: str) -> None:
    if value.lower() not in ("true", "false"):
        raise InvalidAttributeError("boolean attribute format is wrong.")


def _any_text(value: str) -> None:
    pass


# Values in the order in which Java's message lists them.
TOPIC_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "queue.type": Attribute(_one_of("SimpleCQ", "BatchCQ"), "SimpleCQ", is_changeable=False),
    "cleanup.policy": Attribute(_one_of("DELETE", "COMPACTION"), "DELETE", is_changeable=False),
    "message.type": Attribute(
        _one_of("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "LITE", "NORMAL"), "NORMAL"
    ),
    "reserve.time": Attribute(_between(-1, _INT64_MAX), "-1"),
    "lite.topic.expiration": Attribute(_between(-1, 43_200), "-1"),
}
GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "priority.factor": Attribute(_between(0, 100), "100"),
    "lite.bind.topic": Attribute(_any_text),
    "lite.sub.model": Attribute(_one_of("Shared", "Exclusive"), "Shared"),
    "lite.sub.wildcard": Attribute(_any_text),
    "lite.sub.client.quota": Attribute(_between(-1, _INT64_MAX), "2000"),
    "lite.sub.client.max.event.cnt": Attribute(_between(10, _INT64_MAX), "400"),
    "lite.sub.reset.offset.exclusive": Attribute(_true_or_false, "false"),
    "lite.sub.reset.offset.unsubscribe": Attribute(_true_or_false, "false"),
}


def parse_alterations(text: str | None) -> dict[str, str]:
    """The alterations in a request's text, `+key=value,-key`, with their signs. Raises InvalidAttributeError."""
    alterations: dict[str, str] = {}
    parts = (text or "").split(",")
    while parts and not parts[-1]:
        parts.pop()
    for part in parts:
        key, equals, rest = part.partition("=")
        if equals:
            value = rest.partition("=")[0]
            if not value:
                raise InvalidAttributeError(f"attribute {key} has no value: write +key=value, or -key to remove it")
            if "+" not in key:
                raise InvalidAttributeError(f"add/alter attribute format is wrong: {key}")
        else:
            value = ""
            if "-" not in key:
                raise InvalidAttributeError(f"delete attribute format is wrong: {key}")
        if key in alterations:
            raise InvalidAttributeError(f"key duplication: {key}")
        alterations[key] = value
    return alterations


def altered(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, alterations: Mapping[str, str]
) -> dict[str, str]:
    """The attributes after these alterations; `current` None makes new ones. Raises InvalidAttributeError."""
    changes: dict[str, str] = {}
    removed: set[str] = set()
    for signed_key, value in alterations.items():
        sign, key = signed_key[:1], signed_key[1:]
        if not key or "+" in key or "-" in key:
            raise InvalidAttributeError("kv string format wrong.")
        if key in changes or key in removed:
            raise InvalidAttributeError(f"alter duplication key. key: {key}")
        if current is None and sign != "+":
            raise InvalidAttributeError(f"only add attribute is supported while creating topic. key: {key}")
        if sign == "+":
            changes[key] = value
        elif sign == "-":
            if current is not None and key not in current:
                raise InvalidAttributeError(f"attempt to delete a nonexistent key: {key}")
            removed.add(key)
        else:
            raise InvalidAttributeError(f"wrong format key: {key}")
    for key in (*changes, *removed):
        attribute = known.get(key)
        if attribute is None:
            raise InvalidAttributeError(f"unsupported key: {key}")
        if current is not None and not attribute.is_changeable:
            raise InvalidAttributeError(f"attempt to update an unchangeable attribute. key: {key}")
        if key in changes:
            attribute.check(changes[key])
    return {key: value for key, value in {**(current or {}), **changes}.items() if key not in removed}
