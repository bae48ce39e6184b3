"""The options and columns of writing: what Spark hands over becomes a frozen value, or an error that lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from fusee.client.config import name_servers_of
from fusee.errors import ConfigError, MessageError
from fusee.message.topics import validate_send_topic
from fusee.pipeline.option_table import TLS_FILES, Option, OptionError, check_tls, spelled
from fusee.pipeline.write_routes import IN_FLIGHT_BYTES, REQUEST_BYTES, STORED_BYTES_MAX, WriteSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Guarantee: TypeAlias = Literal["at-least-once", "exactly-once", "auto"]
GUARANTEES: Final = ("at-least-once", "exactly-once", "auto")
CREATED_QUEUES: Final = 8

WRITE_OPTIONS: Final = (
    Option("nameServer", "NAMESRV_ADDR of the environment", "name servers, `host:port;host:port`", ("namesrvAddr",)),
    Option("topic", "the column topic", "the topic of all rows", ("path",)),
    Option(
        "delivery",
        "at-least-once",
        "`at-least-once` on any broker; `exactly-once` on Fusee's: rows become visible when their batch is committed, "
        "each once; `auto`: exactly-once where all brokers can",
    ),
    Option(
        "idempotenceKey",
        "true; false with exactly-once",
        "whether each message has the property IDEMPOTENCE_KEY, `query/batch/partition/row`, the same when a row is "
        "written again",
    ),
    Option(
        "sinkName",
        "",
        "tells apart two sinks that one query, or a copy of its checkpoint, writes exactly once",
        where="stream",
    ),
    Option(
        "txnAppId",
        "",
        "with `txnVersion`: a batch write of this application and version is done once, however often it is tried; for "
        "foreachBatch",
        where="batch",
    ),
    Option("txnVersion", "", "a number that rises with each write of `txnAppId`, as the batch id does", where="batch"),
    Option("createTopics", "false", "whether a topic that is not there is made"),
    Option("createQueues", str(CREATED_QUEUES), "queues on each broker of a topic that is made"),
    Option(
        "producerGroup",
        "fusee-spark",
        "the producer group that brokers are told; staged rows have none",
        ("producer.group",),
    ),
    Option("batchBytes", str(REQUEST_BYTES), "bytes of messages in one request; a larger message goes alone"),
    Option("inFlightBytes", str(IN_FLIGHT_BYTES), "bytes that a task has under way to one broker"),
    Option(
        "localWrites",
        "true",
        "whether a worker on a broker's machine hands its messages over in shared memory, where it may, in place of "
        "sending the bytes",
    ),
    Option("requestTimeoutMs", "30000", "how long a broker may take to answer"),
    Option(
        "commitTimeoutMs",
        "120000",
        "how long the commit of a batch that is written exactly once may take before it is asked for again",
    ),
    Option("numRetries", "12", "how often a failed request is tried again"),
    Option(
        "retryIntervalMs", "100", "the wait before the first such try; each later one waits twice as long, up to 5 s"
    ),
    Option("tls", "false", "connect to name servers and brokers by TLS", ("tls.enable",)),
    Option(
        "tlsCaFile", "the system's", "certificates to trust, PEM, a path on every node", ("tls.client.trustCertPath",)
    ),
    Option("tlsCertificate", "", "certificate of this client, PEM, a path on every node", ("tls.client.certPath",)),
    Option("tlsKey", "", "private key of this client, PEM, a path on every node", ("tls.client.keyPath",)),
    Option("tlsVerify", "true", "whether the servers' certificates are checked", ("tls.client.authServer",)),
    Option("checkpointLocation", "", "Spark's own", where="stream"),
    Option("queryName", "", "Spark's own", where="stream"),
)


@dataclass(frozen=True, slots=True)
class WriteColumn:
    """A column that can be written. `types` are Spark's simple names, or how they begin."""

    name: str
    types: tuple[str, ...]
    about: str
    aliases: tuple[str, ...] = ()


_TEXT: Final = ("string", "varchar", "char")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
WRITE_COLUMNS: Final = (
    WriteColumn("topic", _TEXT, "the topic of the row; needed without the option `topic`"),
    WriteColumn("body", ("binary", *_TEXT), "the body of the message; needed", ("value",)),
    WriteColumn("keys", ("array<string>", "binary", *_TEXT), "keys to find it by, one or several", ("key",)),
    WriteColumn("tags", _TEXT, "its tag"),
    WriteColumn("properties", ("map<string,string>",), "its properties"),
    WriteColumn("orderBy", (*_TEXT, *_WHOLE), "rows of one value go to one queue, in their order"),
    WriteColumn(
        "deliverAt", ("timestamp", "bigint"), "when it is delivered; a bigint is milliseconds. Not every broker can"
    ),
    WriteColumn("delayLevel", _WHOLE, "the broker's delay level that it waits for; 0 for none"),
    WriteColumn("flag", _WHOLE, "the message's flag"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What is written, where to, and with which promise."""

    settings: WriteSettings
    topic: str = ""
    delivery: Guarantee = "at-least-once"
    has_key: bool | None = None
    """Whether messages have an idempotence key; None leaves it to the promise."""
    sink_name: str = ""
    txn_app_id: str = ""
    txn_version: int = -1
    columns: Mapping[str, str]
    """By what it is for, the name of the column that is there."""


def write_options(
    given: Mapping[str, str], columns: Sequence[tuple[str, str]], *, writing: Literal["batch", "stream"]
) -> WriteOptions:
    """The options of a write of these columns, (name, Spark's simple type) each. Raises OptionError."""
    said = spelled(given, WRITE_OPTIONS, reading=writing)
    topic = said.get("topic", "").strip()
    if topic:
        try:
            validate_send_topic(topic)
        except MessageError as error:
            raise OptionError(f"option 'topic': {error}") from None
    found = _columns(columns)
    if not topic and "topic" not in found:
        raise OptionError(
            "which topic is to be written? give .option('topic', 'orders'), or a column topic; columns that can be "
            f"written: {_listed()}"
        )
    app_id = said.get("txnAppId", "").strip()
    version = _number(said, "txnVersion", least=0, default=-1)
    if bool(app_id) != (version >= 0):
        raise OptionError("options 'txnAppId' and 'txnVersion' belong together; give both, or neither")
    delivery = _delivery(said)
    if app_id and delivery == "at-least-once" and "delivery" not in said:
        delivery = "exactly-once"
    if delivery == "at-least-once" and said.get("commitTimeoutMs", "").strip():
        raise OptionError(
            "option 'commitTimeoutMs' does nothing with at-least-once, which commits nothing; remove it, or give "
            ".option('delivery', 'exactly-once')"
        )
    has_key = None if "idempotenceKey" not in said else _flag(said, "idempotenceKey", default=True)
    return WriteOptions(
        settings=_settings(said),
        topic=topic,
        delivery=delivery,
        has_key=has_key,
        sink_name=said.get("sinkName", "").strip(),
        txn_app_id=app_id,
        txn_version=version,
        columns=found,
    )


def _columns(columns: Sequence[tuple[str, str]]) -> dict[str, str]:
    spellings = {alias.lower(): column for column in WRITE_COLUMNS for alias in (column.name, *column.aliases)}
    found: dict[str, str] = {}
    for name, simple_type in columns:
        column = spellings.get(name.lower())
        if column is None:
            raise OptionError(f"column {name!r} cannot be written; select from: {_listed()}")
        if column.name in found:
            raise OptionError(
                f"columns {found[column.name]!r} and {name!r} are both {column.name!r}; select one of them"
            )
        kind = simple_type.replace(" ", "").lower()
        if not kind.startswith(column.types):
            raise OptionError(f"column {name!r} is {simple_type}; it is to be {' or '.join(column.types)}")
        found[column.name] = name
    if "body" not in found:
        raise OptionError(f"there is no column body, or value; columns that can be written: {_listed()}")
    if "deliverAt" in found and "delayLevel" in found:
        raise OptionError("columns deliverAt and delayLevel contradict each other; select one of them")
    return found


def _listed() -> str:
    return ", ".join(
        f"{column.name}{''.join(f' (or {alias})' for alias in column.aliases)}" for column in WRITE_COLUMNS
    )


def _settings(said: Mapping[str, str]) -> WriteSettings:
    try:
        name_servers = name_servers_of(said.get("nameServer", "").strip() or None)
    except ConfigError:
        raise OptionError(
            "option 'nameServer' is missing: where is the cluster? e.g. .option('nameServer', '127.0.0.1:9876')"
        ) from None
    files = {name: said.get(name, "").strip() for name in TLS_FILES}
    tls = _flag(said, "tls", default=any(files.values()))
    check_tls(said, is_on=tls)
    batch_bytes = _number(said, "batchBytes", default=REQUEST_BYTES)
    if batch_bytes > STORED_BYTES_MAX:
        raise OptionError(f"option 'batchBytes' is {batch_bytes}, and a broker takes {STORED_BYTES_MAX} at once")
    creates = _flag(said, "createTopics", default=False)
    if not creates and "createQueues" in said:
        raise OptionError("option 'createQueues' does nothing without 'createTopics'; give both, or neither")
    return WriteSettings(
        name_servers=name_servers,
        producer_group=said.get("producerGroup", "").strip() or "fusee-spark",
        batch_bytes=batch_bytes,
        in_flight_bytes=_number(said, "inFlightBytes", default=IN_FLIGHT_BYTES),
        local_writes=_flag(said, "localWrites", default=True),
        request_timeout_ms=_number(said, "requestTimeoutMs", default=30_000),
        commit_timeout_ms=_number(said, "commitTimeoutMs", default=120_000),
        retries=_number(said, "numRetries", least=0, default=12),
        retry_delay_ms=_number(said, "retryIntervalMs", default=100),
        create_queues=_number(said, "createQueues", default=CREATED_QUEUES) if creates else 0,
        tls=tls,
        tls_ca_file=files["tlsCaFile"],
        tls_certificate=files["tlsCertificate"],
        tls_key=files["tlsKey"],
        tls_verify=_flag(said, "tlsVerify", default=True),
    )


def _delivery(said: Mapping[str, str]) -> Guarantee:
    value = said.get("delivery", "").strip().lower() or "at-least-once"
    for known in GUARANTEES:
        if value == known:
            return known
    raise OptionError(f"option 'delivery' is {value!r}; it is {', '.join(GUARANTEES)}")


def _flag(said: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = said.get(name, "").strip().lower()
    if value not in ("", "true", "false"):
        raise OptionError(f"option {name!r} is {value!r}; it is true or false")
    return value == "true" if value else default


def _number(said: Mapping[str, str], name: str, *, least: int = 1, default: int) -> int:
    value = said.get(name, "").strip()
    if not value:
        return default
    if not (value.isascii() and value.isdigit()) or int(value) < least:
        raise OptionError(f"option {name!r} is {value!r}; it is a whole number of at least {least}")
    return int(value)
