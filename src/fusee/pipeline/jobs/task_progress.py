"""How far Spark is with what a job has it do: finished tasks of the stages at work, told from a thread beside it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from fusee.pipeline.jobs.outcome import Observer

INTERVAL_S: Final = 0.25


@contextmanager
def told(spark: SparkSession, observer: Observer, text: str) -> Iterator[None]:
    """While the block runs, the observer hears how many of Spark's tasks are done. A Connect session tells nothing."""
    observer.step(text)
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not ended.wait(INTERVAL_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                observer.advanced(sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known))

    watcher = threading.Thread(target=watch, name="fusee-job-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join(2)
