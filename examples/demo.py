"""What Fusee can do, shown on this machine in a minute or two: `make demo`.

Starts a cluster of real processes; sends, consumes, delays, retries, runs transactions; kills a broker and a name
server under load and counts what is lost; reads a live topic with Spark, archives it, and asks both by SQL. Ends with a
summary and an HTML report, and leaves nothing else behind.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.rule import Rule

import fusee
from fusee.cluster import LocalCluster
from fusee.service import run

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from examples import demo_cluster, demo_messages, demo_pipeline
from examples.demo_report import Chapter, out, save, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator

NEXT = """\
  make run                 a server with a console, and your first message
  fusee cluster start      a cluster like this one that stays, to break by hand
  fusee sql --help         SQL over your own topics
  examples/README.md       a short program for each feature
  make site                the documents: concepts, guides, reference"""


def main(report: Path) -> None:
    begun = time.perf_counter()
    # What clients say in their logs while a broker is away would be in the way here.
    logging.getLogger("fusee").setLevel(logging.CRITICAL)
    chapters: list[Chapter] = []

    @contextmanager
    def chapter(title: str) -> Iterator[Chapter]:
        out.print(Rule(f"[bold]{title}", align="left"))
        chapters.append(Chapter(title))
        started = time.perf_counter()
        yield chapters[-1]
        chapters[-1].seconds = time.perf_counter() - started

    async def with_clients(cluster: LocalCluster) -> None:
        with chapter("Messages: sent, consumed, delayed, retried, in transactions") as messages:
            async with fusee.connect(cluster.name_servers) as mq:
                await demo_messages.play(mq, messages)
        with chapter("A master and a name server are killed while everybody works") as faults:
            await demo_cluster.play(cluster, faults)

    with tempfile.TemporaryDirectory(prefix="fusee-demo-") as folder, ExitStack() as ending:
        cluster = LocalCluster(
            groups=2,
            replicas=2,
            replicated_groups=1,
            name_servers=2,
            role="sync",
            settings=demo_messages.SETTINGS,
        )
        with chapter("A cluster on this machine") as start, out.status("starting") as status:
            cluster.start(progress=lambda what, done, total: status.update(f"{what}: {done} of {total}"))
            ending.callback(cluster.stop)
            start.done(f"{cluster.shape.text}: {len(cluster.nodes)} processes")
            start.fact("processes: name servers, masters, slaves", "2, 2, 1")
        run(with_clients(cluster))
        with chapter("Topics as tables: Spark on the same cluster") as pipeline:
            demo_pipeline.play(cluster.name_servers, Path(folder), pipeline)
    out.print(Rule())
    summarise(chapters)
    save(report, chapters, cluster.shape.text)
    out.print(f"[green]✓[/] everything is stopped and cleared away after {time.perf_counter() - begun:.0f} s")
    out.print(f"[green]✓[/] the report, with plots: [bold]{report.absolute()}[/]", soft_wrap=True)
    out.print("\n[bold]what to try next[/]")
    out.print(NEXT, markup=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("fusee-demo.html"), help="where the report goes")
    main(parser.parse_args().report)
