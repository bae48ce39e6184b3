"""`fusee store inspect|verify|dump` as a person runs them: real processes, real stores."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.golden.store import lines, unpack
from tests.store.offline_stores import HandmadeStore, fill, flip


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("cli"))


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "fusee", "store", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200", "TZ": "UTC", **environment},
    )
    assert "Traceback" not in done.stderr
    return done


def test_inspect_shows_a_store_at_a_glance(clean: Path) -> None:
    done = run("inspect", clean)
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    for part in (
        f"store {clean}",
        "state clean, closed properly",
        "written by Apache RocketMQ 5.5 or newer",
        "4 of 256.0 KiB",
        "0 to 884,931",
        "records 337",
        "last stored 2026-11-16 09:30:46.227",
        "StoreNormal plain 4 184 1 138",
        "StoreBcq batch 1 12 0 -",
        "20261116093002899 399 100.0 % 0 to 238,203",
        "consume queues -",
        "topics.json 29",
        "8 of 1,209,600 slots in use",
        "no transaction table",
    ):
        assert part in text
    assert ".bak" not in done.stdout


@pytest.mark.parametrize(
    ("section", "says", "silent"),
    [
        ("queues", "StoreNormal 3 0 46 46 3", "commit log"),
        ("groups", "CG_store StoreNormal 0 10 46 36", "commit log"),
        ("checkpoint", "log 2026-11-16 09:30:15.176", "StoreNormal"),
    ],
)
def test_inspect_shows_one_section(clean: Path, section: str, says: str, silent: str) -> None:
    done = run("inspect", clean, section)
    assert done.returncode == 0
    assert says in " ".join(done.stdout.split())
    assert silent not in done.stdout


def test_inspect_as_json_is_one_document(clean: Path) -> None:
    whole = json.loads(run("inspect", clean, "--json").stdout)
    assert whole["log"]["endOffset"] == 884_931
    assert {queue["topic"] for queue in whole["queues"]} >= {"StoreNormal", "StoreBcq"}
    part = json.loads(run("inspect", clean, "checkpoint", "--json").stdout)
    assert part["checkpoint"] == whole["checkpoint"]
    assert set(part) == {"path", "state", "checkpoint"}


def test_verify_of_a_whole_store_ends_with_0(clean: Path) -> None:
    done = run("verify", clean)
    assert done.returncode == 0
    assert "337 records in log offsets 0 to 884,931" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 errors, 1 notes"
    assert done.stderr == ""


def test_verify_of_a_damaged_store_ends_with_1_and_names_the_place(tmp_path: Path) -> None:
    root = unpack("clean", tmp_path)
    flip(root / "consumequeue/StoreUni/0/00000000000000000000", 27)
    done = run("verify", root)
    assert done.returncode == 1
    assert "error queue-entry-wrong" in done.stdout
    assert "consumequeue/StoreUni/0/00000000000000000000 at 20:" in done.stdout
    assert "1 errors, 1 notes" in done.stdout
    done = run("verify", root, "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["errors"], report["state"]) == (1, "clean")
    finding = report["findings"][0]
    assert (finding["severity"], finding["kind"], finding["position"]) == ("error", "queue-entry-wrong", 20)
    assert {"severity": "error", "kind": "queue-entry-wrong", "count": 1} in report["counts"]


def test_verify_shows_as_many_of_a_kind_as_asked(tmp_path: Path) -> None:
    root = unpack("clean", tmp_path)
    (root / "consumequeue/StoreUni/0/00000000000000000000").write_bytes(b"\1" * 400)
    done = run("verify", root, "--limit", "2")
    assert done.stdout.count("StoreUni queue 0 at") == 2
    assert "more of this kind" in done.stdout


@pytest.mark.parametrize("command", ["inspect", "verify", "dump"])
def test_path_that_is_no_store_ends_with_2_in_one_line(tmp_path: Path, command: str) -> None:
    done = run(command, tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {tmp_path} is no store")
    assert len(done.stderr.splitlines()) == 1


def test_dump_prints_messages_for_people(clean: Path) -> None:
    done = run("dump", clean, "--topic", "StoreTx", "--count", "2")
    assert done.returncode == 0
    assert "StoreTx queue 0 at 0  log offset 855740, 355 B" in done.stdout
    assert "tag: Tx" in done.stdout
    assert "transaction: COMMIT" in done.stdout
    assert "body (utf8, 28 bytes): transaction 0 COMMIT_MESSAGE" in done.stdout
    assert "stopped after 2; --count 0 prints all" in done.stderr


def objects(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        yield json.loads(line)


def test_dump_as_json_gives_what_java_reads(clean: Path) -> None:
    done = run("dump", clean, "--count", "0", "--body", "hex", "--json")
    assert done.stderr == ""
    for found, expected in zip(objects(done.stdout), lines("clean", "record"), strict=True):
        for ours, theirs in (
            ("topic", "topic"),
            ("queueId", "queueId"),
            ("queueOffset", "queueOffset"),
            ("logOffset", "commitLogOffset"),
            ("storeSize", "storeSize"),
            ("offsetMsgId", "msgId"),
            ("flag", "flag"),
            ("sysFlag", "sysFlag"),
            ("bornTimestamp", "bornTimestamp"),
            ("bornHost", "bornHost"),
            ("storeTimestamp", "storeTimestamp"),
            ("storeHost", "storeHost"),
            ("reconsumeTimes", "reconsumeTimes"),
            ("preparedTransactionOffset", "preparedTransactionOffset"),
            ("bodyCrc", "bodyCRC"),
            ("properties", "properties"),
            ("body", "body"),
        ):
            assert found[ours] == expected[theirs]


def test_dump_by_key_queue_and_time(clean: Path) -> None:
    done = run("dump", clean, "--topic", "StoreTx", "--key", "tx3", "--json", "--body", "none")
    (found,) = objects(done.stdout)
    assert (found["queueOffset"], found["keys"]) == (1, ["tx3", "COMMIT_MESSAGE"])
    assert "body" not in found
    done = run("dump", clean, "--topic", "StoreNormal", "--queue", "1", "--from", "44", "--json")
    assert [each["queueOffset"] for each in objects(done.stdout)] == [44, 45]
    done = run("dump", clean, "--since", "2026-11-16T09:30:46", "--until", "1794821446227", "--json")
    times = [each["storeTimestamp"] for each in objects(done.stdout)]
    assert times
    assert all(1_794_821_446_000 <= time_ms <= 1_794_821_446_227 for time_ms in times)


def test_dump_decompresses_when_asked(clean: Path) -> None:
    packed = [each for each in objects(run("dump", clean, "--count", "0", "--json").stdout) if each["isCompressed"]]
    assert packed
    assert {each["bodyEncoding"] for each in packed} == {"hex"}
    done = run("dump", clean, "--count", "0", "--json", "--decompress")
    plain = {each["logOffset"]: each for each in objects(done.stdout)}
    for each in packed:
        opened = plain[each["logOffset"]]
        assert not opened["isCompressed"]
        assert opened["bodyEncoding"] == "utf8"
        assert opened["bodySize"] > each["bodySize"]


def test_dump_of_a_damaged_log_tells_the_place_and_ends_with_1(tmp_path: Path) -> None:
    made = fill(HandmadeStore(tmp_path), 10)
    root = made.write()
    flip(root / "commitlog" / f"{0:020d}", made.places[4][0] + 4)
    done = run("dump", root, "--json")
    assert done.returncode == 1
    assert len(list(objects(done.stdout))) == 9
    assert f"unreadable: commitlog/{0:020d} at {made.places[4][0]}" in done.stderr


def test_bodies_cannot_move_the_cursor(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.put(body=b"a\x1b[2Jb", properties={"TAGS": "\x07[bold]x"})
    done = run("dump", made.write())
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert r"a\x1b[2Jb" in done.stdout
    assert r"\x07[bold]x" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--since", "yesterday"), "'yesterday' is no time"),
        (("--body", "ebcdic"), "ebcdic"),
        (("--from=-3",), "--from"),
    ],
)
def test_wrong_arguments_end_with_2(clean: Path, arguments: tuple[str, ...], says: str) -> None:
    done = run("dump", clean, *arguments)
    assert done.returncode == 2
    assert says in done.stderr


def test_unknown_topic_ends_with_1_and_names_those_that_are_there(clean: Path) -> None:
    done = run("dump", clean, "--topic", "Nowhere")
    assert done.returncode == 1
    assert "no consume queue of topic Nowhere here; there are" in done.stderr


def test_help_gives_examples() -> None:
    done = run("dump", "--help")
    assert done.returncode == 0
    assert "fusee store dump /store --topic Orders --key order-4711 --json" in done.stdout


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)


def test_progress_is_shown_on_a_terminal_and_not_in_the_output(clean: Path) -> None:
    with terminal() as (ours, theirs):
        done = subprocess.run(
            [sys.executable, "-m", "fusee", "store", "verify", str(clean), "--json"],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
            timeout=60,
        )
        os.close(theirs)
        shown = os.read(ours, 65536).decode()
    assert json.loads(done.stdout)["errors"] == 0
    assert "log" in shown
    assert "queues" in shown


def test_name_server_start_does_not_load_the_store() -> None:
    program = "import sys, fusee.cli.main; print(sorted({'numpy', 'fusee.store.engine'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
