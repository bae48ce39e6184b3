"""The settings of broker, store and name server, from the classes that hold them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from enum import Enum
from typing import TYPE_CHECKING, Any

from fusee.broker.config import BrokerConfig, spelled
from fusee.config import camel
from fusee.namesrv import NameServerConfig
from fusee.store.config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable

HOW = (
    "Defaults, then the file (`-c`: TOML, or RocketMQ's own properties), then the environment, then flags. "
    "`-p` prints every setting with its value and where it came from.\n"
)


def broker_reference() -> str:
    """Settings of a broker."""
    head = "# Settings of the broker\n\n" + HOW + "\nThose of its store stand in the same file: "
    return head + "[settings of the store](store_settings.md).\n\n" + _table(BrokerConfig, spelled, "FUSEE_BROKER_")


def store_reference() -> str:
    """Settings of a store, which stand in the broker's file."""
    head = "# Settings of the store\n\nThey stand in the file of the [broker](broker_settings.md).\n\n"
    return head + _table(StoreConfig, spelled, "FUSEE_BROKER_")


def name_server_reference() -> str:
    """Settings of a name server."""
    head = "# Settings of the name server\n\n" + HOW + "\n"
    return head + _table(NameServerConfig, camel, "FUSEE_NAMESRV_")


def _table(config: type[Any], spelling: Callable[[str], str], prefix: str) -> str:
    about = meanings(config)
    lines = [
        f"In the environment a setting is `{prefix}` and its name in capitals, with underscores.\n",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    for field in dataclasses.fields(config):
        # Names that no heading mentions are found by the search of the site all the same.
        meaning = about[field.name].replace("|", "\\|").replace("\n", " ")
        lines.append(f"| `{spelling(field.name)}` | {_default(field)} | {meaning} |")
    return "\n".join(lines) + "\n"


def meanings(config: type[Any]) -> dict[str, str]:
    """What is written below each field. Raises KeyError later for a field that has nothing below."""
    (body,) = (node for node in ast.parse(inspect.getsource(config)).body if isinstance(node, ast.ClassDef))
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = inspect.cleandoc(str(ast.literal_eval(text.value)))
    return found


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "this machine's"
    value = field.default
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else "empty"
