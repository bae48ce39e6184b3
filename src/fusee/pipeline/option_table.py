"""The options of reading as a table: spelling, other spellings, default, meaning. The documents are made from it.

Names are those of Spark's Kafka source where it has the option, else those of RocketMQ's connector for Spark, which are
accepted as other spellings too. Spark hands options over without regard to case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class OptionError(ConfigError):
    """An option of the source is unknown, has the wrong form, or contradicts another."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `where` is what reads it: both, batch or stream."""

    name: str
    default: str
    about: str
    aliases: tuple[str, ...] = ()
    where: str = "both"


READ_OPTIONS: Final = (
    Option("nameServer", "NAMESRV_ADDR of the environment", "name servers, `host:port;host:port`", ("namesrvAddr",)),
    Option("store", "", "store directories, divided by commas, read without a broker; excludes `nameServer`"),
    Option("subscribe", "", "topics, divided by commas", ("topic", "path")),
    Option("subscribePattern", "", "a regular expression that the whole name of a topic matches"),
    Option("assign", "", 'queues that are there: `{"orders": [0, 1]}` or `{"orders": {"broker-a": [0, 1]}}`'),
    Option("tags", "*", "a tag expression such as `paid || shipped`, evaluated by the broker", ("subExpression",)),
    Option("sql", "", "an SQL92 expression over properties, evaluated by the broker; excludes `tags`"),
    Option(
        "startingOffsets",
        "earliest (batch), latest (stream)",
        'where a new query begins: `earliest`, `latest`, or per queue `{"orders": {"broker-a": {"0": 23, "1": -2}}}`, '
        "where -2 is earliest and -1 latest; others begin at earliest",
    ),
    Option("startingTimestamp", "", "begin at the first message stored at this time (ms) or later"),
    Option("startingOffsetsByTimestamp", "", "the same per queue, as JSON like `startingOffsets`"),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "when a queue has no message that late: `error`, or `latest` to begin at its end",
    ),
    Option(
        "endingOffsets",
        "latest",
        "where a batch ends, exclusive: `latest`, or JSON like `startingOffsets`; others end at latest",
        where="batch",
    ),
    Option("endingTimestamp", "", "end before the first message stored at this time (ms) or later", where="batch"),
    Option("endingOffsetsByTimestamp", "", "the same per queue, as JSON like `startingOffsets`", where="batch"),
    Option(
        "maxOffsetsPerTrigger",
        "",
        "at most this many messages in a micro-batch, divided by the backlog of queues",
        where="stream",
    ),
    Option("minOffsetsPerTrigger", "", "wait for this many messages, at most `maxTriggerDelay` long", where="stream"),
    Option(
        "maxTriggerDelay",
        "15m",
        "how long to wait for `minOffsetsPerTrigger`: `500ms`, `30s`, `15m`, `1h`",
        where="stream",
    ),
    Option(
        "maxBytesPerTrigger",
        "",
        "at most about this many bytes in a micro-batch (`64m`), by the sizes that the queues' indexes show",
        where="stream",
    ),
    Option("minPartitions", "", "at least this many tasks, if there are as many messages"),
    Option("maxRecordsPerPartition", "", "at most this many messages in a task"),
    Option(
        "failOnDataLoss",
        "true",
        "fail when messages are gone that should be read; else go on with those still there, and warn",
    ),
    Option(
        "includeProperties",
        "true; false with kafkaCompatible",
        "whether there is a column with all properties (`headers` with kafkaCompatible)",
        ("includeHeaders",),
    ),
    Option("kafkaCompatible", "false", "the columns of Spark's Kafka source instead of Fusee's"),
    Option(
        "group",
        "",
        "a consumer group that a stream commits its progress to, so that its lag shows wherever lags are shown",
        ("consumerGroup", "consumer.group", "kafka.group.id"),
    ),
    Option(
        "localReads",
        "true",
        "whether a worker on a broker's machine reads its files, where it may, in place of having the bytes sent",
    ),
    Option("pullBatchSize", "32", "messages asked for in one pull of a broker that has no bulk read"),
    Option("pullTimeoutMs", "30000", "how long a broker may take to answer a worker", ("kafkaConsumer.pollTimeoutMs",)),
    Option("fetchOffset.numRetries", "6", "how often a failed request is tried again"),
    Option(
        "fetchOffset.retryIntervalMs", "100", "the wait before the first such try; each one later waits twice as long"
    ),
    Option("requestTimeoutMs", "5000", "how long name servers and brokers may take to answer the driver"),
    Option(
        "partition.metadata.cache.ttl.ms",
        "10000",
        "how long topics and queues are taken as known; new ones are seen after this time",
        where="stream",
    ),
    Option("pollIntervalMs", "50", "while nothing is new, how often brokers are asked", where="stream"),
    Option(
        "gatherMs",
        "18",
        "how long messages are gathered at most before a micro-batch that follows a small one at once, half of the "
        "time that one took: fewer batches cost less; 0 for the least delay",
        where="stream",
    ),
    Option("tls", "false", "connect to name servers and brokers by TLS", ("tls.enable",)),
    Option(
        "tlsCaFile", "the system's", "certificates to trust, PEM, a path on every node", ("tls.client.trustCertPath",)
    ),
    Option("tlsCertificate", "", "certificate of this client, PEM, a path on every node", ("tls.client.certPath",)),
    Option("tlsKey", "", "private key of this client, PEM, a path on every node", ("tls.client.keyPath",)),
    Option("tlsVerify", "true", "whether the servers' certificates are checked", ("tls.client.authServer",)),
)

TLS_OPTIONS: Final = ("tls", "tlsCaFile", "tlsCertificate", "tlsKey", "tlsVerify")
TLS_FILES: Final = TLS_OPTIONS[1:4]
"""Whoever names one of these wants TLS."""


def check_tls(said: Mapping[str, str], *, is_on: bool) -> None:
    """Raises OptionError for an option of TLS that would do nothing."""
    there = [name for name in TLS_OPTIONS[1:] if said.get(name, "").strip()]
    if there and not is_on:
        raise OptionError(
            f"option {there[0]!r} would do nothing without TLS; give .option('tls', 'true'), or remove it. Options of "
            f"TLS are: {', '.join(TLS_OPTIONS)}"
        )
    if "tlsKey" in there and "tlsCertificate" not in there:
        raise OptionError("option 'tlsKey' does nothing without 'tlsCertificate'; give both, or neither")


def spelled(given: Mapping[str, str], table: Iterable[Option], *, reading: str) -> dict[str, str]:
    """The options given, by their proper names. Raises OptionError for one that is unknown or given in two spellings.

    `reading` is batch or stream: options of the other are refused, because they would do nothing.
    """
    options = tuple(table)
    names = {spelling.lower(): option for option in options for spelling in (option.name, *option.aliases)}
    found: dict[str, str] = {}
    origin: dict[str, str] = {}
    for key, value in given.items():
        option = names.get(key.lower())
        if option is None:
            valid = ", ".join(each.name for each in options if each.where in ("both", reading))
            raise OptionError(f"unknown option {key!r}; valid for a {reading} are: {valid}")
        if option.where not in ("both", reading):
            raise OptionError(
                f"option {option.name!r} is for a {option.where} and does nothing in a {reading}; remove it"
            )
        if option.name in found:
            raise OptionError(f"option {option.name!r} is given twice, as {origin[option.name]!r} and as {key!r}")
        found[option.name] = value
        origin[option.name] = key
    return found
