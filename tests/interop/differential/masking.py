"""An answer as something that can be compared: decoded, and without what no two brokers have in common.

Masked are: times near now, addresses of servers and connections, ids that hold an address, log offsets, rates, spans,
counters of data versions; opaque, language and version of the answering program are left out. Everything else is
compared as it is. Where Java answers with an exception and a place in its code, the remark becomes `<exception>`,
and a remark ends where advice begins ("See https://...").

Tables may come in any order, and so may lists, which are sets in Java, except where order has a meaning
(`ORDERED_LISTS`). Keys become text, so that an outcome can be kept as JSON.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fusee.errors import FuseeError
from fusee.message.properties import decode_properties
from fusee.message.record import iterate_records
from fusee.wire.codes import RequestCode as Rq
from fusee.wire.lenient_json import ObjectKey, loads

if TYPE_CHECKING:
    from fusee.message.model import StoredMessage
    from fusee.wire.command import Command
    from tests.interop.differential.steps import Outcome

EXCEPTION: Final = "<exception>"
FORGOTTEN: Final = "<forgotten>"

_DAY_MS: Final = 24 * 3600 * 1000
_RECORD_CODES: Final = {
    *(Rq.PULL_MESSAGE, Rq.LITE_PULL_MESSAGE, Rq.QUERY_MESSAGE, Rq.VIEW_MESSAGE_BY_ID),
    *(Rq.POP_MESSAGE, Rq.PEEK_MESSAGE, Rq.CHECK_TRANSACTION_STATE, Rq.CONSUME_MESSAGE_DIRECTLY),
}
# Codes whose body, when there is one, is a file of settings.
_SETTINGS_CODES: Final = {Rq.GET_BROKER_CONFIG}
ORDERED_LISTS: Final = {"queueData"}
_LOG_OFFSETS: Final = {
    *("physicOffset", "commitLogOffset", "indexLastUpdatePhyoffset", "prepared_transaction_offset", "log_offset"),
    *("masterFlushOffset", "masterCommitLogMaxOffset"),
}
_RATES: Final = {"topicPutTps", "consumeTps", "tps", "avgpt", "sum"}
_SPANS: Final = {"delayTime", "spentTimeMills"}
_VERSIONS: Final = {"dataVersion", "mappingDataVersion", "version"}

_ADDRESS: Final = re.compile(r"/?\b\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}\b")
_ID: Final = re.compile(r"\b[0-9A-F]{32}(?:[0-9A-F]{24})?\b")
_TIME: Final = re.compile(r"(?<![\d.])1[5-9]\d{11}(?![\d.])")
_JAVA_EXCEPTION: Final = re.compile(
    r"^(?:(?:(?:java|javax|org|com|io)\.)+[\w.$]*(?:Exception|Error)\b|Cannot (?:invoke|read|load|store|enter) )",
    re.DOTALL,
)
# What stands in a response of Java until a handler puts something better there, which some forget to do.
_FORGOTTEN: Final = "not set any response code"
_ADVICE: Final = re.compile(r"\s*\n?See https?://\S+ for further details\.", re.DOTALL)
_WRITTEN_TIME: Final = re.compile(r"\b20\d\d-\d\d-\d\d[# T]\d\d:\d\d:\d\d(?:[:.,]\d{3})?")
_PATH_IN_NAME: Final = re.compile(r"_/\S+$")
_HANDLE: Final = {"recallHandle"}
_PROPERTIES: Final = {"properties"}
_FAILED_OFFSET: Final = re.compile(r"(by offset failed, )\d{5,}")


@dataclass
class Mask:
    """The mask for one broker: what to call the addresses that are its own."""

    names: dict[str, str] = field(default_factory=dict)
    """Address -> what stands for it."""

    def outcome(self, code: int, answer: Command) -> Outcome:
        """The answer to a request with this code."""
        return {
            "code": answer.code,
            "remark": self.remark(answer.code, answer.remark),
            "fields": {name: self.value(name, text) for name, text in sorted(answer.all_fields().items())},
            "body": self.body(code, answer.body),
        }

    def push(self, request: Command) -> Outcome:
        """A request of the broker."""
        return {
            "request": request.code,
            "oneway": request.is_oneway,
            "fields": {name: self.value(name, text) for name, text in sorted(request.all_fields().items())},
            "body": self.body(request.code, request.body),
        }

    def body(self, code: int, body: bytes) -> Any:
        if not body:
            return None
        if code in _RECORD_CODES:
            try:
                return {"records": [self.record(message) for message in iterate_records(body)]}
            except FuseeError:
                pass  # not records: an answer of another kind under the same code
        if code in _SETTINGS_CODES:
            lines = (line.partition("=") for line in body.decode().splitlines() if "=" in line)
            return {"settings": {name.strip(): self.text(value.strip()) for name, _, value in lines}}
        if body[:1] in b"{[":
            try:
                return self.value("", loads(body))
            except FuseeError:
                pass  # text that only begins like JSON
        try:
            return {"text": self.text(body.decode())}
        except UnicodeDecodeError:
            return {"size": len(body)}

    def record(self, message: StoredMessage) -> dict[str, Any]:
        properties = {name: self.value(name, text) for name, text in sorted(message.properties.items())}
        # A unique key that the broker makes is longer where the machine has an IPv6 address.
        has_made_key = properties.get("UNIQ_KEY") == "<id>"
        return {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "log_offset": "<log offset>",
            "flag": message.flag,
            "sys_flag": message.sys_flag,
            "born_timestamp_ms": self.value("", message.born_timestamp_ms),
            "born_host": self.text(message.born_host),
            "store_timestamp_ms": self.value("", message.store_timestamp_ms),
            "store_host": self.text(message.store_host),
            "reconsume_times": message.reconsume_times,
            "prepared_transaction_offset": self.value(
                "prepared_transaction_offset", message.prepared_transaction_offset
            ),
            "body_crc": message.body_crc,
            "version": message.version,
            "size": "<size>" if has_made_key else message.store_size,
            "body": self.text(message.body.decode("latin-1")),
            "properties": properties,
        }

    def value(self, key: str, value: Any) -> Any:
        """A value under this key, masked, with text as keys and unordered lists sorted."""
        if isinstance(value, dict):
            if key in _VERSIONS and "counter" in value:
                return "<data version>"
            items = ((self.key(name), item) for name, item in value.items())
            return {name: self.value(name, item) for name, item in sorted(items, key=lambda pair: pair[0])}
        if isinstance(value, list):
            masked = [self.value(key, item) for item in value]
            return masked if key in ORDERED_LISTS else sorted(masked, key=_order)
        if isinstance(value, str):
            if key in _HANDLE:
                return "<handle>"
            if key in _PROPERTIES:
                properties = decode_properties(value.encode())
                return {name: self.value(name, text) for name, text in sorted(properties.items())}
            if key in _LOG_OFFSETS and value.isdigit() and value != "0":
                return "<log offset>"
            if key in _VERSIONS and value.startswith("{"):
                return "<data version>"
            return self.text(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        if key in _LOG_OFFSETS:
            return "<log offset>" if value > 0 else value
        if key in _RATES:
            return "<rate>"
        if key in _SPANS:
            return "<span>"
        return "<now>" if _is_now(value) else value

    def key(self, key: Any) -> str:
        """A key of a table as text."""
        if isinstance(key, ObjectKey):
            return self.text(" ".join(f"{name}={key[name]}" for name in sorted(key)))
        return _PATH_IN_NAME.sub("_<path>", self.text(str(key)))

    def remark(self, code: int, remark: str | None) -> str | None:
        if not remark:
            return None  # Java writes both
        if remark == _FORGOTTEN:
            return None if code == 0 else FORGOTTEN
        if _JAVA_EXCEPTION.match(remark):
            return EXCEPTION
        remark = _FAILED_OFFSET.sub(r"\1<log offset>", _ADVICE.sub("", remark))
        return self.text(remark.strip()) or None

    def text(self, text: str) -> str:
        for address in sorted(self.names, key=len, reverse=True):
            text = text.replace(f"/{address}", self.names[address]).replace(address, self.names[address])
        text = _ADDRESS.sub("<address>", text)
        text = _ID.sub("<id>", text)
        text = _WRITTEN_TIME.sub("<written time>", text)
        return _TIME.sub(lambda found: "<now>" if _is_now(int(found[0])) else found[0], text)


def _is_now(value: float) -> bool:
    return abs(value - time.time() * 1000) < _DAY_MS


def _order(value: Any) -> bytes:
    return msgspec.json.encode(value)
