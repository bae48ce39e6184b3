from __future__ import annotations

import pickle

import pytest

from fusee.pipeline.option_table import OptionError
from fusee.pipeline.write_options import WRITE_COLUMNS, WRITE_OPTIONS, write_options

BODY = [("body", "binary")]
HERE = {"nameserver": "127.0.0.1:9876", "topic": "orders"}


def test_defaults() -> None:
    options = write_options(HERE, BODY, writing="batch")
    assert (options.topic, options.delivery, options.has_key, options.txn_version) == (
        "orders",
        "at-least-once",
        None,
        -1,
    )
    assert options.settings.name_servers == "127.0.0.1:9876"
    assert options.settings.create_queues == 0
    assert options.settings.local_writes
    assert options.columns == {"body": "body"}
    assert pickle.loads(pickle.dumps(options)) == options


def test_everything_can_be_said() -> None:
    given = {
        "namesrvaddr": "a:1;b:2",
        "delivery": "Exactly-Once",
        "idempotencekey": "true",
        "sinkname": "second",
        "createtopics": "true",
        "createqueues": "3",
        "producergroup": "writers",
        "batchbytes": "1000",
        "inflightbytes": "2000",
        "localwrites": "false",
        "requesttimeoutms": "3",
        "committimeoutms": "4",
        "numretries": "0",
        "retryintervalms": "5",
        "tlscafile": "/ca.pem",
        "tlsverify": "false",
        "checkpointlocation": "/tmp/x",
    }
    columns = [
        ("topic", "string"), ("value", "string"), ("key", "binary"), ("TAGS", "string"),
        ("properties", "map<string,string>"), ("orderBy", "bigint"), ("delayLevel", "int"), ("flag", "int"),
    ]  # fmt: skip
    options = write_options(given, columns, writing="stream")
    settings = options.settings
    assert (options.delivery, options.has_key, options.sink_name) == ("exactly-once", True, "second")
    assert (settings.create_queues, settings.producer_group, settings.batch_bytes) == (3, "writers", 1000)
    assert (settings.in_flight_bytes, settings.request_timeout_ms, settings.commit_timeout_ms) == (2000, 3, 4)
    assert (settings.retries, settings.retry_delay_ms, settings.local_writes) == (0, 5, False)
    assert (settings.tls, settings.tls_ca_file, settings.tls_verify) == (True, "/ca.pem", False)
    assert options.columns["body"] == "value"
    assert options.columns["tags"] == "TAGS"


def test_transaction_of_a_batch_write_is_exactly_once_unless_said_otherwise() -> None:
    given = {**HERE, "txnappid": "job", "txnversion": "7"}
    options = write_options(given, BODY, writing="batch")
    assert (options.txn_app_id, options.txn_version, options.delivery) == ("job", 7, "exactly-once")
    assert write_options({**given, "delivery": "at-least-once"}, BODY, writing="batch").delivery == "at-least-once"


@pytest.mark.parametrize(
    ("given", "columns", "words"),
    [
        ({**HERE, "topik": "x"}, BODY, "unknown option 'topik'.*delivery"),
        ({**HERE, "delivery": "twice"}, BODY, "at-least-once, exactly-once, auto"),
        ({**HERE, "topic": "a b"}, BODY, "illegal characters"),
        ({**HERE, "topic": "SCHEDULE_TOPIC_XXXX"}, BODY, "belongs to the broker"),
        ({**HERE, "batchbytes": "5000000"}, BODY, "batchBytes"),
        ({**HERE, "numretries": "-1"}, BODY, "whole number of at least 0"),
        ({**HERE, "createtopics": "yes"}, BODY, "true or false"),
        ({**HERE, "createqueues": "2"}, BODY, "without 'createTopics'"),
        ({**HERE, "txnappid": "x"}, BODY, "belong together"),
        ({**HERE, "txnversion": "1"}, BODY, "belong together"),
        ({**HERE, "sinkname": "x"}, BODY, "is for a stream"),
        ({**HERE, "tls": "false", "tlscafile": "/x"}, BODY, "would do nothing"),
        ({**HERE, "tlsverify": "false"}, BODY, "'tlsVerify' would do nothing without TLS.*tlsCaFile"),
        ({**HERE, "tls": "true", "tlskey": "/k"}, BODY, "'tlsKey' does nothing without 'tlsCertificate'"),
        ({**HERE, "committimeoutms": "5"}, BODY, "'commitTimeoutMs' does nothing with at-least-once"),
        ({"nameserver": "a:1"}, BODY, "which topic"),
        (HERE, [("keys", "string")], "no column body"),
        (HERE, [("body", "binary"), ("queueId", "int")], "column 'queueId' cannot be written; select from: topic"),
        (HERE, [("body", "binary"), ("value", "binary")], "both 'body'"),
        (HERE, [("body", "int")], "column 'body' is int; it is to be binary or string"),
        (HERE, [("body", "binary"), ("deliverAt", "timestamp"), ("delayLevel", "int")], "contradict"),
    ],
)
def test_error_says_what_is_wrong_and_what_is_valid(
    given: dict[str, str], columns: list[tuple[str, str]], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        write_options(given, columns, writing="batch")


def test_name_server_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(OptionError, match="nameServer"):
        write_options({"topic": "orders"}, BODY, writing="batch")


def test_every_option_and_column_says_what_it_is_for() -> None:
    assert all(option.about for option in WRITE_OPTIONS)
    assert all(column.about for column in WRITE_COLUMNS)
