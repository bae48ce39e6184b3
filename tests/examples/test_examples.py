"""Every example runs as a reader would run it, without a server, and shows what it is there to show."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(FOLDER.glob("*.py"))
# The parts of the demo are run by the demo.
EXAMPLES = [path for path in PROGRAMS if not path.stem.startswith("demo_")]

SHOWN = {
    "admin": r"a reset would go from \[5, 5\] to 0\ndeleted$",
    "batch": r"a batch of 3 begins at offset 0\n5000 results, [\d,]+ messages a second$",
    "blocking": r"20 consumed, 0 left$",
    "broadcast": r"ada heard 'prices have changed'\n(?s:.*)bob/offsets\.json$",
    "compression": r"^LZ4: 380,000 bytes, stored in [\d,]{3,5}\nZLIB: .*\nZSTD: .* stored in [\d,]{3,5}$",
    "consume": r"^order \d+, paid, \('\d+',\), [\d-]+\n100 consumed, 0 left$",
    "controlled_time": r"^0:10:00: pay, please, try 1\n0:10:10: .*\n0:10:40: .*\n0:11:00 have passed in",
    "delay": r"^'pay, please' was delivered \d s after it was sent$",
    "demo": r"acknowledged meanwhile, and lost +│ +[\d,]+, 0 │\n(?s:.*)the report, with plots: .*fusee-demo\.html\n",
    "errors": r"no such topic\n  TopicNotFoundError, retryable: True, code: 17\n",
    "failover": r"^consumed: before\n\w+Error, retryable: True\nconsumed: after$",
    "filters": r"^by tag: \['order 0', 'order 2', 'order 3'\]\nby SQL: \['order 1', 'order 3'\]$",
    "listener": r"^billing: 40, packing: 40, shipping: 40$",
    "ordered": r"^ada: created, paid, shipped\nbob: .*\ncyd: .*\nqueue 3 has both: True$",
    "pause_and_seek": r"paused: True\nresumed b'order 1'\nagain b'order 0' b'order 1'$",
    "pull_consumer": r"^20 polled and committed\nfirst again: order \d+\nqueue 0: 2 messages, the next offset is 2$",
    "request_reply": r"^the price of a book is 9\.50\nno answer: ",
    "retries": r"^try 1\ntry 2\ntry 3\ndead letter: 'a parcel without address'\ntry 1\ndelivered$",
    "send": r"it survives: memory\n100 more, 4 queues\ncalled back: stored\noneway: on its way$",
    "share_queues": r"^ada has queues \[0, 1, 2, 3, 4, 5, 6, 7\]\n(?s:.*)bob has queues \[\d, \d, \d, \d\]\n",
    "spark_batch": r"^\{'open': 30, 'paid': 30\}\norder of key 42: order 42$",
    "spark_exactly_once": r"^300 of 300 orders, each once\nthe last batch again: 300 of 300, each once$",
    "spark_sql": r"^order-0: a book for 5\.50\norder-2: .*\norder-3: .*\norder-5: a book for 15\.50$",
    "spark_stream": r"^50 archived, the group is 0 behind\n100 archived, the group is 0 behind$",
    "spark_write": r"^20 written, 4 of ada in their order: 0, 5, 10, 15$",
    "test_shop": r"4 passed",
    "trace_and_hooks": r"trace: Pub by example-shop, .*: True\ntrace: SubBefore .*\ntrace: SubAfter by example-trace",
    "transaction": r"^rolled back: ada has not enough\ndelivered: .*20.*30.*\naccounts: \{'ada': 50, 'bob': 150\}$",
    "transaction_listener": r"asked about order 2: paid\ndelivered: order 0 order 2$",
    "typed_handlers": r"(?=(?s:.*)^bill ada for order 7: 9\.50 \(try 1\)$)(?=(?s:.*)^no order: '.*seven.*'$)",
}


# One Java at a time, which takes its time to start on a busy machine.
ON_SPARK = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
REPORT = "fusee-demo.html"


def is_on_spark(path: Path) -> bool:
    return path.stem == "demo" or path.stem.startswith("spark_")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=ON_SPARK if is_on_spark(path) else ()) for path in EXAMPLES],
)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    module = ["-m", "pytest", "-p", "no:cacheprovider"] if path.stem.startswith("test_") else []
    done = subprocess.run(
        [sys.executable, *module, str(path)],
        capture_output=True,
        text=True,
        timeout=580 if is_on_spark(path) else 100,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith(("NAMESRV_ADDR", "PYTEST_"))},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Workers that Spark ends with its session may say so by a BrokenPipeError.
    assert "Traceback" not in done.stderr or path.stem.startswith("spark_")
    assert re.search(SHOWN[path.stem], done.stdout.strip(), re.MULTILINE), done.stdout
    if path.stem == "demo":
        report = (tmp_path / REPORT).read_text()
        assert report.count("<svg") == 5
        assert "nothing was measured" not in report
        (tmp_path / REPORT).unlink()
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


def test_every_part_of_the_demo_is_in_it() -> None:
    demo = (FOLDER / "demo.py").read_text()
    for path in PROGRAMS:
        if path.stem.startswith("demo_"):
            assert path.stem in demo


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_example_says_what_it_shows_and_how_to_run_it(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert docstring.splitlines()[0].endswith((".", "`."))
    if path.stem.startswith("demo"):
        assert "make demo" in docstring
    else:
        assert f"examples/{path.name}" in docstring


def test_index_lists_every_example_once() -> None:
    index = (FOLDER / "README.md").read_text()
    listed = re.findall(r"\]\(([a-z_]+\.py)\)", index)
    assert sorted(listed) == [path.name for path in PROGRAMS if not path.stem.startswith("demo_")]
