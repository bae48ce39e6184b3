"""Pipelines that are declared in a file: sources, steps in SQL or Python, sinks.

    name: paid-orders
    defaults: {nameServer: "127.0.0.1:9876"}        # options of every source and sink of the format fusee
    checkpoints: ./checkpoints                      # one folder for each sink
    sources:
      orders: {topic: orders, startingOffsets: earliest, watermark: {column: storeTimestamp, delay: 10 minutes}}
      prices: {format: parquet, path: ./prices, stream: false}
    steps:
      paid: {sql: "select keys, cast(body as string) as text from orders where tags = 'paid'"}
      known: {python: "steps.py:known", from: [paid, prices]}
    sinks:
      out: {from: known, topic: orders-known}
      files: {from: paid, format: parquet, path: ./paid, partitionBy: [day], outputMode: append}

Everything in a source or sink that is not a word of this language is an option of its format. Sources and steps are
views by their names; a step sees what stands before it. A step in Python is a function that gets the session and, by
name, the frames it is `from`, and gives a frame. A sink is one streaming query with a checkpoint of its own, so a
pipeline that is run again goes on where each sink was; a sink that is fed by no stream is written once, whole.

A file in the language of Spark's own declarative pipelines (it has `libraries`) is given to Spark's runner.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fusee.errors import ConfigError, FuseeError
from fusee.pipeline.registration import register
from fusee.pipeline.session import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from fusee.pipeline.sink_counts import SinkCounts

FORMAT: Final = "fusee"
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_TOP: Final = {"name", "defaults", "checkpoints", "sources", "steps", "sinks", "trigger"}
_SOURCE: Final = {"format", "stream", "watermark", "topic", "schema"}
_STEP: Final = {"sql", "python", "from", "watermark"}
_SINK: Final = {"from", "format", "outputMode", "trigger", "partitionBy", "topic", "mode"}


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may come, by a column of time."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from."""

    name: str
    format: str
    options: Mapping[str, str]
    is_stream: bool
    watermark: Watermark | None = None
    schema: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """Rows made of other rows: a statement, or a function in a file."""

    name: str
    sql: str = ""
    python: str = ""
    inputs: tuple[str, ...] = ()
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go."""

    name: str
    input: str
    format: str
    options: Mapping[str, str]
    output_mode: str = "append"
    trigger: str = ""
    partition_by: tuple[str, ...] = ()
    mode: str = "append"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a file declares; paths in it are relative to its folder."""

    name: str
    folder: Path
    checkpoints: str
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    trigger: str = ""


@dataclass(frozen=True, slots=True)
class SinkOutcome:
    """What a sink did in one run."""

    name: str
    batches: int
    rows: int
    """Rows that its query read."""


@dataclass(slots=True)
class Running:
    """The queries of a pipeline at work."""

    pipeline: Pipeline
    spark: SparkSession
    counts: SinkCounts
    queries: dict[str, StreamingQuery] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    """Sinks that were written at once, because no stream feeds them."""

    def stop(self) -> None:
        for query in self.queries.values():
            query.stop()
        self.spark.streams.removeListener(self.counts)

    def wait(self, is_stopped: Callable[[], bool] | None = None) -> list[SinkOutcome]:
        """Until all queries have ended, one has failed, or it is to stop. Raises FuseeError naming the sink."""
        from pyspark.errors import StreamingQueryException

        try:
            is_over = False
            while not is_over:
                # Looked at before the queries are asked, so that each is asked once after its end.
                is_over = not any(query.isActive for query in self.queries.values())
                for name, query in self.queries.items():
                    try:
                        query.awaitTermination(1)
                    except StreamingQueryException as failure:
                        raise FuseeError(f"sink {name!r} of pipeline {self.pipeline.name!r}: {failure}") from failure
                is_over = is_over or (is_stopped is not None and is_stopped())
            for query in self.queries.values():
                query.stop()
            done = [SinkOutcome(name, *self.counts.of(query)) for name, query in self.queries.items()]
        finally:
            self.stop()
        return done + [SinkOutcome(name, 1, 0) for name in self.written]


def read_pipeline(path: Path) -> Pipeline:
    """The pipeline that a file declares. Raises ConfigError that says what is wrong and where."""
    value = _yaml(path)
    _known(value, _TOP, f"{path}")
    defaults = _texts(value.get("defaults") or {}, f"{path}: defaults")
    sources = tuple(
        _source(name, one, defaults, f"{path}: source {name!r}") for name, one in _named(value, "sources", path).items()
    )
    steps = tuple(_step(name, one, f"{path}: step {name!r}") for name, one in _named(value, "steps", path).items())
    sinks = tuple(
        _sink(name, one, defaults, f"{path}: sink {name!r}") for name, one in _named(value, "sinks", path).items()
    )
    if not sources or not sinks:
        raise ConfigError(f"{path}: a pipeline has at least one source and one sink")
    _check_names(path, sources, steps, sinks)
    folder = path.resolve().parent
    checkpoints = str(value.get("checkpoints") or "checkpoints")
    return Pipeline(
        str(value.get("name") or path.stem),
        folder,
        _placed(folder, checkpoints),
        tuple(_with_paths(folder, one) for one in sources),
        steps,
        tuple(_with_paths(folder, one) for one in sinks),
        str(value.get("trigger") or ""),
    )


def start_pipeline(spark: SparkSession, pipeline: Pipeline, *, once: bool = True) -> Running:
    """Makes the views and starts a query for each sink: over what is there now, or with `once=False` for good."""
    register(spark)
    frames: dict[str, DataFrame] = {}
    for source in pipeline.sources:
        frames[source.name] = _view(spark, source.name, _load(spark, source), source.watermark)
    for step in pipeline.steps:
        frames[step.name] = _view(spark, step.name, _made(spark, pipeline, step, frames), step.watermark)
    from fusee.pipeline.sink_counts import SinkCounts

    running = Running(pipeline, spark, SinkCounts())
    spark.streams.addListener(running.counts)
    try:
        for sink in pipeline.sinks:
            frame = frames[sink.input]
            if frame.isStreaming:
                running.queries[sink.name] = _start(pipeline, sink, frame, once=once)
            else:
                writer = frame.write.format(sink.format).options(**sink.options).mode(sink.mode)
                (writer.partitionBy(*sink.partition_by) if sink.partition_by else writer).save()
                running.written.append(sink.name)
    except BaseException:
        running.stop()
        raise
    return running


def is_sparks_own(path: Path) -> bool:
    """Whether the file is in the language of Spark's declarative pipelines."""
    return "libraries" in _yaml(path)


def run_sparks_own(path: Path, *, dry_run: bool = False, conf: Mapping[str, str] | None = None) -> int:
    """Has Spark's own runner do it, where it finds Java, this Python and our source; its exit code."""
    prepare_environment()
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-pipelines"), "dry-run" if dry_run else "run", "--spec", str(path.resolve())]
    # A catalog that outlives the run: with the one in memory a second run would find its tables' folders in the way.
    for name, value in {"spark.sql.catalogImplementation": "hive", **(conf or {})}.items():
        command += ["--conf", f"{name}={value}"]
    return subprocess.run(command, env={**os.environ, "SPARK_HOME": str(home)}, cwd=path.resolve().parent).returncode


def _load(spark: SparkSession, source: Source) -> DataFrame:
    reader: Any = spark.readStream if source.is_stream else spark.read
    reader = reader.format(source.format).options(**source.options)
    if source.schema:
        reader = reader.schema(source.schema)
    frame: DataFrame = reader.load()
    return frame


def _view(spark: SparkSession, name: str, frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is not None:
        frame = frame.withWatermark(watermark.column, watermark.delay)
    frame.createOrReplaceTempView(name)
    return frame


def _made(spark: SparkSession, pipeline: Pipeline, step: Step, frames: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import DataFrame as Frame

    where = f"step {step.name!r} of pipeline {pipeline.name!r}"
    if step.sql:
        try:
            return spark.sql(step.sql)
        except (AnalysisException, ParseException) as error:
            raise ConfigError(f"{where}: {error}") from error
    function = _function(pipeline.folder, step.python, where)
    made = function(spark, **{name: frames[name] for name in step.inputs})
    if not isinstance(made, Frame):
        raise ConfigError(f"{where}: {step.python} gave {type(made).__name__}, not a DataFrame")
    return made


def _function(folder: Path, reference: str, where: str) -> Callable[..., Any]:
    file, colon, name = reference.rpartition(":")
    if not colon:
        raise ConfigError(f"{where}: python is FILE:FUNCTION, e.g. steps.py:enrich; not {reference!r}")
    path = folder / file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"{where}: there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"{where}: {path} has no function {name!r}")
    return function


def _start(pipeline: Pipeline, sink: Sink, frame: DataFrame, *, once: bool) -> StreamingQuery:
    writer = frame.writeStream.format(sink.format).options(**sink.options).outputMode(sink.output_mode)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    writer = writer.queryName(f"{pipeline.name}: {sink.name}")
    writer = writer.option("checkpointLocation", f"{pipeline.checkpoints}/{sink.name}")
    trigger = sink.trigger or pipeline.trigger
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger or "0 seconds").start()


# Reading the file


def _yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(f"pipelines are declared in YAML ({error}): pip install 'fusee[spark]'") from error
    try:
        value = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} declares no pipeline: it has sources, steps and sinks")
    return value


def _named(value: Mapping[str, Any], part: str, path: Path) -> dict[str, Any]:
    entries = value.get(part) or {}
    if not isinstance(entries, dict) or not all(isinstance(one, dict) for one in entries.values()):
        raise ConfigError(f"{path}: {part} are written as NAME: {{...}}")
    for name in entries:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ConfigError(f"{path}: {name!r} in {part} is no name: letters, digits and _, no digit first")
    return entries


def _known(value: Mapping[str, Any], words: set[str], where: str) -> None:
    unknown = [str(word) for word in value if word not in words]
    if unknown:
        raise ConfigError(f"{where}: unknown {', '.join(unknown)}; there are {', '.join(sorted(words))}")


def _texts(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: options are written as NAME: VALUE")
    return {str(name): _text(one, f"{where}: {name}") for name, one in value.items()}


def _text(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
        return ",".join(map(str, value))
    if isinstance(value, dict | list):
        raise ConfigError(f"{where} is a text, a number, true or false")
    return str(value)


def _source(name: str, value: Mapping[str, Any], defaults: Mapping[str, str], where: str) -> Source:
    form = str(value.get("format") or FORMAT)
    options = _texts({word: one for word, one in value.items() if word not in _SOURCE}, where)
    if form == FORMAT:
        options = {**defaults, **options}
        if "topic" in value:
            options["subscribe"] = _text(value["topic"], where)
    elif "topic" in value:
        raise ConfigError(f"{where}: topic is for sources of the format {FORMAT}, and this one is {form}")
    return Source(
        name,
        form,
        options,
        bool(value.get("stream", True)),
        _watermark(value, where),
        str(value.get("schema") or ""),
    )


def _step(name: str, value: Mapping[str, Any], where: str) -> Step:
    _known(value, _STEP, where)
    if ("sql" in value) == ("python" in value):
        raise ConfigError(f"{where}: give either sql or python")
    inputs = value.get("from") or []
    inputs = [inputs] if isinstance(inputs, str) else inputs
    return Step(
        name,
        str(value.get("sql") or ""),
        str(value.get("python") or ""),
        tuple(map(str, inputs)),
        _watermark(value, where),
    )


def _sink(name: str, value: Mapping[str, Any], defaults: Mapping[str, str], where: str) -> Sink:
    form = str(value.get("format") or FORMAT)
    options = _texts({word: one for word, one in value.items() if word not in _SINK}, where)
    if form == FORMAT:
        options = {**defaults, **options}
        if "topic" in value:
            options["topic"] = _text(value["topic"], where)
    if "from" not in value:
        raise ConfigError(f"{where}: which source or step feeds it? give from: NAME")
    parted = value.get("partitionBy") or []
    return Sink(
        name,
        str(value["from"]),
        form,
        options,
        str(value.get("outputMode") or "append"),
        str(value.get("trigger") or ""),
        tuple([parted] if isinstance(parted, str) else map(str, parted)),
        str(value.get("mode") or "append"),
    )


def _watermark(value: Mapping[str, Any], where: str) -> Watermark | None:
    given = value.get("watermark")
    if given is None:
        return None
    if not isinstance(given, dict) or set(given) != {"column", "delay"}:
        raise ConfigError(f"{where}: watermark is {{column: storeTimestamp, delay: 10 minutes}}")
    return Watermark(str(given["column"]), str(given["delay"]))


def _check_names(path: Path, sources: Sequence[Source], steps: Sequence[Step], sinks: Sequence[Sink]) -> None:
    known: list[str] = []
    parts: list[Source | Step] = [*sources, *steps]
    for one in parts:
        if one.name in known:
            raise ConfigError(f"{path}: {one.name!r} is declared twice")
        if isinstance(one, Step):
            missing = [name for name in one.inputs if name not in known]
            if missing:
                raise ConfigError(
                    f"{path}: step {one.name!r} is from {missing[0]!r}, which does not stand before it; there are "
                    f"{', '.join(known)}"
                )
        known.append(one.name)
    for sink in sinks:
        if sink.input not in known:
            raise ConfigError(f"{path}: sink {sink.name!r} is from {sink.input!r}; there are {', '.join(known)}")


def _with_paths(folder: Path, one: Any) -> Any:
    """Paths in options are relative to the file that names them."""
    from dataclasses import replace

    options = dict(one.options)
    for name in ("path", "store"):
        if name in options:
            options[name] = ",".join(_placed(folder, part.strip()) for part in options[name].split(","))
    return replace(one, options=options)


def _placed(folder: Path, path: str) -> str:
    return path if "://" in path or path.startswith(("/", "file:")) else str(folder / path)
