from __future__ import annotations

from typing import Any

import pytest

from fusee.message.model import MessageQueue
from fusee.pipeline.option_table import READ_OPTIONS, OptionError, spelled
from fusee.pipeline.options import EARLIEST, LATEST, ReadOptions, Tls, Topics, Where, chosen_queues, read_options

HERE = {"nameServer": "127.0.0.1:9876", "subscribe": "orders"}


def batch(**given: str) -> ReadOptions:
    return read_options({**HERE, **given}, reading="batch")


def stream(**given: str) -> ReadOptions:
    return read_options({**HERE, **given}, reading="stream")


def test_defaults_differ_between_batch_and_stream() -> None:
    assert batch().starting == Where(EARLIEST)
    assert stream().starting == Where(LATEST)
    assert batch().ending == Where(LATEST)


def test_names_are_taken_without_regard_to_case_and_in_other_spellings() -> None:
    found = read_options(
        {"NAMESERVER": "a:1", "topic": "orders, parts", "subexpression": "x || y", "consumergroup": "g"},
        reading="batch",
    )
    assert found.topics == Topics(names=("orders", "parts"))
    assert (found.tags, found.group) == ("x || y", "g")


def test_every_spelling_is_spelled_once() -> None:
    spellings = [name.lower() for option in READ_OPTIONS for name in (option.name, *option.aliases)]
    assert len(spellings) == len(set(spellings))


def test_every_option_of_the_table_is_read() -> None:
    """Each option, given a value of its own, changes what is read; so none is accepted and ignored."""
    values: dict[str, dict[str, str]] = {
        "nameServer": {"nameServer": "b:2"},
        "store": {"nameServer": "", "store": "/x"},
        "subscribe": {"subscribe": "parts"},
        "subscribePattern": {"subscribe": "", "subscribePattern": "o.*"},
        "assign": {"subscribe": "", "assign": '{"orders": [0]}'},
        "startingOffsetsByTimestampStrategy": {"startingOffsetsByTimestampStrategy": "latest"},
        "tags": {"tags": "paid"},
        "sql": {"sql": "a > 1"},
        "startingOffsets": {"startingOffsets": '{"orders": {"0": 3}}'},
        "startingTimestamp": {"startingTimestamp": "5"},
        "startingOffsetsByTimestamp": {"startingOffsetsByTimestamp": '{"orders": {"0": 3}}'},
        "endingOffsets": {"endingOffsets": '{"orders": {"0": 3}}'},
        "endingTimestamp": {"endingTimestamp": "5"},
        "endingOffsetsByTimestamp": {"endingOffsetsByTimestamp": '{"orders": {"0": 3}}'},
        "maxTriggerDelay": {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "3s"},
        "failOnDataLoss": {"failOnDataLoss": "false"},
        "includeProperties": {"includeProperties": "false"},
        "kafkaCompatible": {"kafkaCompatible": "true"},
        "group": {"group": "g"},
        "localReads": {"localReads": "false"},
        "tls": {"tls": "true"},
        "tlsVerify": {"tls": "true", "tlsVerify": "false"},
        "tlsCaFile": {"tlsCaFile": "/ca"},
        "tlsCertificate": {"tlsCertificate": "/c"},
        "tlsKey": {"tlsCertificate": "/c", "tlsKey": "/k"},
    }
    for option in READ_OPTIONS:
        reading: Any = "stream" if option.where == "stream" else "batch"
        given = values.get(option.name, {option.name: "7"})
        before = {key: value for key, value in HERE.items() if given.get(key) != ""}
        if option.name == "maxTriggerDelay":
            before["minOffsetsPerTrigger"] = "1"
        if option.name == "tlsVerify":
            before["tls"] = "true"
        if option.name == "tlsKey":
            before["tlsCertificate"] = "/c"
        if option.name == "startingOffsetsByTimestampStrategy":
            before["startingTimestamp"] = "5"
        after = {key: value for key, value in {**before, **given}.items() if value}
        base = read_options(before if before.keys() >= HERE.keys() else HERE, reading=reading)
        assert read_options(after, reading=reading) != base, option.name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribee": "x"}, "unknown option 'subscribee'; valid for a batch are: nameServer, store, subscribe"),
        ({"topic": "x"}, "option 'subscribe' is given twice, as 'subscribe' and as 'topic'"),
        ({"maxOffsetsPerTrigger": "5"}, "is for a stream and does nothing in a batch"),
        ({"subscribePattern": "x"}, "subscribe and subscribePattern contradict each other"),
        ({"tags": "a", "sql": "b = 1"}, "tags and sql contradict each other"),
        ({"store": "/x"}, "nameServer and store contradict each other"),
        ({"startingOffsets": "latest"}, "a batch would be empty"),
        ({"startingOffsets": "soon"}, "it is earliest, latest or JSON"),
        ({"startingOffsets": "{oops"}, "is no JSON"),
        ({"startingOffsets": '{"t": 5}'}, "no queues"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "has '0': -3"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "contradict each other"),
        ({"endingOffsets": "earliest"}, "nothing would be read"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "nothing would be read"),
        ({"minPartitions": "0"}, "a whole number of at least 1"),
        ({"minPartitions": "many"}, "a whole number of at least 1"),
        ({"failOnDataLoss": "maybe"}, "it is true or false"),
        ({"tls": "false", "tlsKey": "/k"}, "'tlsKey' would do nothing"),
        ({"tlsVerify": "false"}, "'tlsVerify' would do nothing without TLS"),
        ({"tls.client.authServer": "false"}, "Options of TLS are: tls, tlsCaFile, tlsCertificate, tlsKey, tlsVerify"),
        ({"tls": "true", "tlsKey": "/k"}, "'tlsKey' does nothing without 'tlsCertificate'"),
        (
            {"startingOffsetsByTimestampStrategy": "latest"},
            "without a time to begin at; give one of startingTimestamp, startingOffsetsByTimestamp",
        ),
        ({"startingOffsetsByTimestampStrategy": "x"}, "it is error or latest"),
        ({"tags": "||"}, "option 'tags'"),
    ],
)
def test_batch_option_that_is_wrong_is_named_with_the_cure(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said.replace("|", r"\|").replace("(", r"\(")):
        batch(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"endingOffsets": "latest"}, "is for a batch and does nothing in a stream"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is 9, more than"),
        ({"maxTriggerDelay": "5s"}, "does nothing without 'minOffsetsPerTrigger'"),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"}, "a duration such as"),
        ({"maxBytesPerTrigger": "lots"}, "a size such as"),
    ],
)
def test_stream_option_that_is_wrong_is_named_with_the_cure(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        stream(**given)


@pytest.mark.parametrize(
    "name",
    [
        "sql",
        "group",
        "maxBytesPerTrigger",
        "localReads",
        "pullBatchSize",
        "pullTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "requestTimeoutMs",
        "tls",
        "tlsCaFile",
        "tlsCertificate",
        "tlsKey",
        "tlsVerify",
    ],
)
def test_option_for_brokers_is_refused_beside_a_store(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} and store contradict each other"):
        read_options({"store": "/x", "subscribe": "orders", name: "true"}, reading="stream")


def test_assigned_queue_that_is_not_there_is_named_beside_those_that_are() -> None:
    there = [MessageQueue("x", broker_name, queue_id) for broker_name in ("b", "a") for queue_id in (1, 0)]
    some = Topics(names=("x",), queues=frozenset({("x", None, 1), ("x", "a", 0)}))
    assert [(each.broker_name, each.queue_id) for each in chosen_queues(there, some, missing_ok=False)] == [
        ("a", 0),
        ("a", 1),
        ("b", 1),
    ]
    assert chosen_queues(there, Topics(pattern=".*"), missing_ok=False) == tuple(sorted(there))
    for key, place in ((("x", None, 7), "7 of 'x'"), (("x", "c", 0), "0 of 'x' on c")):
        more = Topics(names=("x",), queues=some.queues | {key})
        with pytest.raises(OptionError, match=f"names queue {place}, which does not exist; there are: a/0, a/1, b/0"):
            chosen_queues(there, more, missing_ok=False)
        assert len(chosen_queues(there, more, missing_ok=True)) == 3


def test_what_is_missing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(OptionError, match="'nameServer' is missing"):
        read_options({"subscribe": "orders"}, reading="batch")
    with pytest.raises(OptionError, match="which topics are to be read"):
        read_options({"nameServer": "a:1"}, reading="batch")


def test_name_servers_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    assert read_options({"subscribe": "orders"}, reading="batch").name_servers == "env:1"


def test_queues_and_offsets_are_named_with_and_without_broker() -> None:
    found = batch(startingOffsets='{"orders": {"broker-a": {"0": 5, "1": -2}, "3": 7}}').starting
    assert found.by_queue == {("orders", "broker-a", 0): 5, ("orders", "broker-a", 1): -2, ("orders", None, 3): 7}
    assigned = read_options({"nameServer": "a:1", "assign": '{"x": [1], "y": {"b": [2, 3]}}'}, reading="batch").topics
    assert assigned.queues == {("x", None, 1), ("y", "b", 2), ("y", "b", 3)}
    assert assigned.names == ("x", "y")


def test_durations_and_sizes_have_units() -> None:
    found = stream(minOffsetsPerTrigger="1", maxTriggerDelay="2m", maxBytesPerTrigger="64m")
    assert (found.max_trigger_delay_ms, found.max_bytes_per_trigger) == (120_000, 64 << 20)


def test_tls_is_on_when_a_file_of_it_is_named() -> None:
    assert batch(**{"tls.client.trustCertPath": "/ca", "tls.client.authServer": "false"}).tls == Tls(
        "/ca", verify=False
    )


def test_kafka_compatible_rows_have_headers_on_demand_as_there() -> None:
    assert not batch(kafkaCompatible="true").include_properties
    assert batch(kafkaCompatible="true", includeHeaders="true").include_properties


def test_spelling_is_the_tables() -> None:
    assert spelled({"TOPIC": "x"}, READ_OPTIONS, reading="batch") == {"subscribe": "x"}
