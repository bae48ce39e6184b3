"""The benchmarks by name. Each is a module with TITLE and `run(plan) -> Findings`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.suites import (
    broker,
    broker_programs,
    clients,
    codec,
    forms,
    ha,
    namesrv,
    pipeline_fetch,
    serve,
    spark,
    store,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.plan import Plan
    from benchmarks.results import Findings

SUITES: Final[dict[str, tuple[str, Callable[[Plan], Findings]]]] = {
    "namesrv": (namesrv.TITLE, namesrv.run),
    "codec": (codec.TITLE, codec.run),
    "store": (store.TITLE, store.run),
    "broker": (broker.TITLE, broker.run),
    "broker-programs": (broker_programs.TITLE, broker_programs.run),
    "forms": (forms.TITLE, forms.run),
    "clients": (clients.TITLE, clients.run),
    "pipeline-fetch": (pipeline_fetch.TITLE, pipeline_fetch.run),
    "spark": (spark.TITLE, spark.run),
    "ha": (ha.TITLE, ha.run),
    "serve": (serve.TITLE, serve.run),
}
