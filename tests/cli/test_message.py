from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.scene import Terminal, server, wait_for


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with server(topics={"orders": 2, "many": 4, "lines": 1, "none": 1, "life": 1}) as running:
        yield Terminal(running.name_server)


def test_a_message_is_sent_tailed_browsed_and_found(terminal: Terminal) -> None:
    (sent,) = terminal.json(
        "message", "send", "orders", "hello", "--tag", "paid", "--key", "order-1", "--property", "a=b"
    )
    assert (sent["topic"], sent["status"]) == ("orders", "SEND_OK")
    line = json.loads(terminal.ok("message", "tail", "orders", "--from", "earliest", "--limit", "1", "--json"))
    assert (line["body"], line["tag"], line["keys"], line["properties"]["a"]) == ("hello", "paid", ["order-1"], "b")
    assert line["messageId"] == sent["messageId"]
    assert "[paid] order-1 hello" in terminal.ok("message", "tail", "orders", "--from", "earliest", "--limit", "1")
    (browsed,) = terminal.json("message", "browse", "orders")
    assert browsed["offsetId"] == sent["offsetId"]
    place = f"{sent['broker']}/{sent['queue']}"
    assert "hello" in terminal.ok("message", "browse", "orders", "--queue", place, "--offset", str(sent["queueOffset"]))
    wait_for(lambda: terminal.run("message", "query", "orders", "--key", "order-1").exit_code == 0)
    for arguments in (["--key", "order-1"], ["--id", sent["messageId"]], ["--since", "1h"]):
        assert terminal.json("message", "query", "orders", *arguments)[0]["body"] == "hello"
    assert terminal.json("message", "query", "--id", sent["offsetId"])[0]["body"] == "hello"
    shown = terminal.ok("message", "query", "orders", "--id", sent["messageId"])
    assert "order-1" in shown
    assert shown.rstrip().endswith("hello")
    assert terminal.run("message", "query", "orders", "--key", "nothing").exit_code == 1


def test_many_messages_are_counted_and_kept_in_order(terminal: Terminal) -> None:
    text = terminal.ok("message", "send", "many", "n {n}", "--count", "600", "--key", "k{n}", "--order-by", "one")
    assert text == "sent 600 messages to 1 queues: SEND_OK\n"
    lines = terminal.ok("message", "tail", "many", "--from", "earliest", "--no-follow", "--json").splitlines()
    assert [json.loads(line)["body"] for line in lines] == [f"n {number}" for number in range(1, 601)]
    lines = terminal.ok("message", "tail", "many", "--from", "598", "--limit", "2", "--json").splitlines()
    assert [json.loads(line)["keys"] for line in lines] == [["k599"], ["k600"]]
    few = terminal.run("message", "browse", "many", "--limit", "3")
    assert "the first 3; --limit shows more" in few.notes


def test_lines_files_and_bytes_are_sent(terminal: Terminal, tmp_path: Path) -> None:
    assert terminal.run("message", "send", "lines", "-", "--lines", typed="one\ntwo\n").exit_code == 0
    path = tmp_path / "body"
    path.write_bytes(b"\x00\xff")
    terminal.ok("message", "send", "lines", "-", "--file", str(path))
    found = terminal.json("message", "browse", "lines")
    assert [(each["body"], each["bodyEncoding"]) for each in found] == [
        ("one", "utf8"),
        ("two", "utf8"),
        ("00ff", "hex"),
    ]
    assert terminal.json("message", "browse", "lines", "--body", "base64")[2]["body"] == "AP8="
    assert "body" not in terminal.json("message", "browse", "lines", "--body", "none")[0]


def test_the_life_of_a_message(terminal: Terminal) -> None:
    (sent,) = terminal.json("message", "send", "life", "x")
    wait_for(lambda: terminal.run("message", "life", "life", sent["messageId"]).exit_code == 0)
    life = terminal.json("message", "life", "life", sent["messageId"])
    assert [event["what"] for event in life["events"]] == ["born", "stored"]
    text = terminal.run("message", "trace", "life", sent["messageId"])
    assert "stored" in text.output
    assert "no client traced it" in text.notes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tail", "none", "--from", "soon"], "is no time"),
        (["query", "none"], "give --key, --id"),
        (["query"], "name the topic"),
        (["query", "none", "--key", "a", "--id", "b"], "not both"),
        (["browse", "none", "--offset", "1"], "give --queue"),
        (["browse", "none", "--queue", "nothing"], "is no queue"),
        (["send", "none", "x", "--property", "bad"], "NAME=VALUE"),
        (["send", "none", "x", "--delay", "soon"], "is no span of time"),
        (["send", "none", "x", "--lines"], "give `-` as BODY"),
        (["send", "none", "x", "--file", "/no/such/file"], "cannot read"),
        (["tail", "none", "--no-follow"], "--no-follow goes with"),
    ],
)
def test_a_wrong_command_line_is_told_in_words(terminal: Terminal, arguments: list[str], words: str) -> None:
    answer = terminal.run("message", *arguments)
    assert answer.exit_code == 2
    plain = " ".join(answer.notes.replace("│", " ").split())
    assert words in plain


def test_a_topic_that_is_not_there_is_named(terminal: Terminal) -> None:
    assert "'nowhere'" in terminal.run("message", "tail", "nowhere").error


def test_a_send_that_fails_says_how_many_were_sent(terminal: Terminal) -> None:
    answer = terminal.run("message", "send", "none", "x", "--count", "3", "--delay", "1h")
    assert "0 of 3 messages were sent" in answer.notes
    assert "give --delay-level instead" in answer.error
    assert "in 3 tries" in answer.error or "tries" not in answer.error
