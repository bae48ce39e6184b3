"""One message as people and programs are shown it."""

from __future__ import annotations

import base64
from enum import Enum
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fusee.cli.render import body_text, facts, queue_text, time_text
from fusee.errors import MessageError
from fusee.message.properties import RESERVED_NAMES

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fusee.client.received import ReceivedMessage


class BodyForm(Enum):
    """How a message body is printed."""

    UTF8 = "utf8"
    HEX = "hex"
    BASE64 = "base64"
    NONE = "none"


def body_of(message: ReceivedMessage) -> bytes:
    """The body; a note in its place when it cannot be decompressed."""
    try:
        return message.body
    except MessageError as error:
        return f"({error})".encode()


def described(message: ReceivedMessage, form: BodyForm = BodyForm.UTF8) -> dict[str, Any]:
    """A message as programs read it."""
    found: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queueTopic": message.queue.topic,
        "queue": message.queue_id,
        "queueOffset": message.queue_offset,
        "logOffset": message.log_offset,
        "messageId": message.message_id,
        "offsetId": message.offset_id,
        "tag": message.tag,
        "keys": message.keys,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "transactionId": message.transaction_id,
        "properties": dict(message.properties),
    }
    if form is not BodyForm.NONE:
        body = body_of(message)
        found["bodySize"] = len(body)
        found["bodyEncoding"], found["body"] = encoded_body(body, form)
    return found


def encoded_body(body: bytes, form: BodyForm) -> tuple[str, str]:
    """How a body is written, and the body; what is no text is written in hexadecimal digits."""
    if form is BodyForm.BASE64:
        return form.value, base64.b64encode(body).decode()
    if form is BodyForm.UTF8:
        try:
            return form.value, body.decode()
        except UnicodeDecodeError:
            pass
    return BodyForm.HEX.value, body.hex()


def show_message(out: Console, message: ReceivedMessage, form: BodyForm = BodyForm.UTF8) -> None:
    """A message with everything that is known of it."""
    body = body_of(message)
    own = [f"{name}={value}" for name, value in message.properties.items() if name not in RESERVED_NAMES]
    system = [f"{name}={value}" for name, value in message.properties.items() if name in RESERVED_NAMES]
    rows: list[tuple[str, object]] = [
        ("id", Text(message.message_id, style="bold")),
        ("offset id", message.offset_id),
        ("topic", message.topic),
        ("queue", f"{queue_text(message.queue)} at {message.queue_offset}"),
        ("kept in", message.queue.topic if message.queue.topic != message.topic else ""),
        ("tag", message.tag),
        ("keys", " ".join(message.keys)),
        ("born", f"{time_text(message.born_timestamp_ms)} at {message.born_host}"),
        ("stored", f"{time_text(message.store_timestamp_ms)} by {message.store_host}"),
        ("tries", message.reconsume_times or ""),
        ("transaction", message.transaction_id),
        ("properties", ", ".join(own)),
        ("system", ", ".join(system)),
        ("size", f"{len(body):,} bytes"),
    ]
    out.print(facts(rows))
    if form is not BodyForm.NONE:
        out.print()
        out.print(Text(encoded_body(body, form)[1]), soft_wrap=True)


def message_line(message: ReceivedMessage, width: int) -> RenderableType:
    """A message on one line, shortened to the width of the terminal."""
    head = Text.assemble(
        (time_text(message.store_timestamp_ms)[11:], "dim"),
        " ",
        (f"{queue_text(message.queue)}@{message.queue_offset}", "cyan"),
        " ",
        (f"[{message.tag}] " if message.tag else "", "green"),
        (f"{' '.join(message.keys)} " if message.keys else "", "magenta"),
    )
    head.append(body_text(body_of(message)))
    head.no_wrap = True
    head.truncate(width, overflow="ellipsis")
    return head
