"""Writes the documents that are made from tables; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from fusee.metrics import catalogue
from fusee.pipeline.option_table import READ_OPTIONS, Option
from fusee.pipeline.schema import COLUMNS, KAFKA_COLUMNS
from fusee.pipeline.write_options import WRITE_COLUMNS, WRITE_OPTIONS
from fusee.wire.fields import Header, Int32, Int64, RpcHeader, TopicHeader
from fusee.wire.protocol_table import TABLE, Body, BodyKind, Entry, Node, Status, entries_of
from fusee.wire.response_table import RESPONSES

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.diagrams import DRAWINGS
from tests.interop.clients.matrix import CLIENTS, FEATURES
from tests.interop.differential.differences import DIFFERENCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parent.parent

METRICS_MARK = "<!-- metrics: made by `make docs` -->"
CLIENT_MATRIX = ROOT / "docs" / "client_matrix.json"

MARKS = {Status.SERVED: "**served**", Status.PLANNED: "planned", Status.NOT_SERVED: "-"}

WHO = {
    Node.NAME_SERVER: "Brokers announce themselves here; clients ask where topics are.",
    Node.BROKER: "Stores and delivers messages.",
    Node.CLIENT: "Requests that a broker sends to the producers and consumers connected to it.",
    Node.CONTROLLER: "Elects the master of each broker group.",
    Node.CONTAINER: "Runs several brokers in one process.",
}


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [*lines, ""]


def side(header: type[Header] | None, body: Body) -> str:
    """Header and body of one direction, in short."""
    parts = []
    if header is not None:
        parts.append(f"[{header.__name__}](#{header.__name__.lower()})")
    if body.kind is BodyKind.JSON:
        parts.append("JSON" if body.type is None else f"JSON {type_name(body.type)}")
    elif body.kind is not BodyKind.NONE:
        parts.append(body.kind.value)
    return ", ".join(parts)


def type_name(body_type: Any) -> str:
    """`TopicList`, `list of str`."""
    if get_origin(body_type) is list:
        return f"list of {type_name(get_args(body_type)[0])}"
    return str(body_type.__name__)


def node_section(node: Node) -> list[str]:
    """What one node answers."""
    lines = [f"## {node.value.capitalize()}", "", WHO[node], ""]
    rows = [
        (
            str(entry.code.value),
            f"`{entry.name}`",
            entry.meaning,
            side(entry.request_header, entry.request_body),
            side(entry.response_header, entry.response_body),
            MARKS[entry.status_at(node)],
        )
        for entry in entries_of(node)
        if not entry.is_extension
    ]
    return lines + table(("code", "name", "meaning", "request", "answer", "Fusee"), rows)


def extension_section() -> list[str]:
    """Fusee's own requests."""
    rows = [
        (
            str(entry.code.value),
            f"`{entry.name}`",
            entry.conversation.value,
            entry.meaning,
            side(entry.request_header, entry.request_body),
            side(entry.response_header, entry.response_body),
        )
        for entry in TABLE.values()
        if entry.is_extension
    ]
    lines = ["## Extensions", "", "Requests of Fusee's own, served by its broker; the reference answers 3.", ""]
    return lines + table(("code", "name", "of", "meaning", "request", "answer"), rows)


def reserved_section(reserved: Sequence[Entry]) -> list[str]:
    """Numbers without a meaning."""
    lines = ["## Reserved", "", "Numbers that the reference has a name for and no handler; both answer 3.", ""]
    return lines + table(("code", "name", "note"), [(str(e.code.value), f"`{e.name}`", e.meaning) for e in reserved])


def field_type(annotation: Any) -> str:
    """`int32`, `text?`: the wire's view of a Python type, with a question mark where it may be absent."""
    if get_origin(annotation) is not Annotated and type(None) in get_args(annotation):
        return next(field_type(a) for a in get_args(annotation) if a is not type(None)) + "?"
    names: list[tuple[Any, str]] = [(Int32, "int32"), (Int64, "int64"), (str, "text"), (bool, "bool")]
    return next(name for python_type, name in names if annotation == python_type)


def header_fields(header: type[Header]) -> str:
    """Every field of a header with its type and default."""
    inherited = {f.encode_name for base in (RpcHeader, TopicHeader) for f in msgspec.structs.fields(base)}
    hints = get_type_hints(header, include_extras=True)
    cells = []
    for field in msgspec.structs.fields(header):
        if field.encode_name in inherited:
            continue
        default = "" if field.default in (msgspec.NODEFAULT, None) else f" = {field.default!r}".lower()
        cells.append(f"`{field.encode_name}` {field_type(hints[field.name])}{default}")
    if issubclass(header, TopicHeader):
        cells.append("*topic fields*")
    elif issubclass(header, RpcHeader):
        cells.append("*common fields*")
    return ", ".join(cells)


def header_section() -> list[str]:
    """The fields of every header in the tables."""
    headers = {h for e in TABLE.values() for h in (e.request_header, e.response_header) if h is not None}
    lines = [
        "## Headers",
        "",
        "Fields travel as text in `extFields`, by the names given here. A question mark: may be absent.",
        "A value: what holds when absent.",
        "",
        f"*Common fields* are {header_names(RpcHeader)}; *topic fields* are those and `lo` bool?.",
        "",
    ]
    rows = [
        (f'<a id="{header.__name__.lower()}"></a>{header.__name__}', header_fields(header))
        for header in sorted(headers, key=lambda h: h.__name__)
    ]
    return lines + table(("header", "fields"), rows)


def header_names(header: type[Header]) -> str:
    hints = get_type_hints(header, include_extras=True)
    fields = msgspec.structs.fields(header)
    return ", ".join(f"`{field.encode_name}` {field_type(hints[field.name])}" for field in fields)


def response_section() -> list[str]:
    """Every response code."""
    rows = [(str(code.value), f"`{code.name}`", meaning) for code, meaning in sorted(RESPONSES.items())]
    return ["## Response codes", "", *table(("code", "name", "meaning"), rows)]


def clients_section() -> list[str]:
    """Which features work with which client, as the last run of the client matrix found it."""
    if not CLIENT_MATRIX.exists():
        return []
    cells = json.loads(CLIENT_MATRIX.read_text(encoding="utf-8"))["cells"]
    outcomes = {(cell["client"], cell["feature"]): cell for cell in cells}
    notes: list[str] = []

    def mark(client: str, feature: str) -> str:
        cell = outcomes.get((client, feature))
        if cell is None:
            return ""
        if cell["outcome"] == "passed":
            return "yes"
        if cell["reason"] not in notes:
            notes.append(cell["reason"])
        name = "n/a" if cell["outcome"] == "absent" else f"**{cell['outcome']}**"
        return f"{name} ({notes.index(cell['reason']) + 1})"

    rows = [(title, *(mark(client, feature) for client in CLIENTS)) for feature, title in FEATURES.items()]
    lines = [
        "## Clients",
        "",
        "Real clients against Fusee's name server and broker, every cell a scenario of `make interop`, which prints",
        "this table (tests/interop/test_client_matrix.py). Clients: "
        + "; ".join(f"{name}: {meaning}" for name, meaning in CLIENTS.items())
        + ".",
        "",
        *table(("feature", *CLIENTS), rows),
    ]
    if notes:
        lines += ["n/a: the client does not offer it.", ""]
        lines += [f"{number}. {note}." for number, note in enumerate(notes, 1)] + [""]
    return lines


def differences_section() -> list[str]:
    """Where the broker answers otherwise than the reference, as the differential test knows it."""
    rows = [(difference.reason, str(len(difference.steps)), difference.steps[0]) for difference in DIFFERENCES]
    return [
        "## Differences",
        "",
        "One script of requests goes to Apache RocketMQ 5.5.0 and to Fusee, and the answers are compared after times,",
        "addresses and ids are masked (tests/interop/differential). These differences remain, each for its reason; the",
        "test fails for any other one, and for one of these that is gone.",
        "",
        *table(("why", "steps", "for example"), rows),
    ]


def compatibility() -> str:
    """docs/compatibility.md."""
    reserved = [entry for entry in TABLE.values() if not entry.nodes]
    counts = []
    for node in Node:
        entries = [entry for entry in entries_of(node) if not entry.is_extension]
        served = sum(entry.status_at(node) is Status.SERVED for entry in entries)
        link = f"[{node.value}](#{node.value.replace(' ', '-')})"
        counts.append((link, str(len(entries)), str(served), str(len(entries) - served)))
    reference = [entry for entry in TABLE.values() if not entry.is_extension]
    served = sum(entry.status is Status.SERVED for entry in reference)
    lines = [
        "<!-- Made by `make docs` from src/fusee/wire/protocol_table.py, tests/interop/differential/differences.py and",
        "docs/client_matrix.json: edit there. -->",
        "",
        "# Compatibility with Apache RocketMQ 5.5.0",
        "",
        f"The remoting protocol has {len(reference)} request codes. Fusee serves {served} of them today.",
        f"{len(reserved)} are reserved numbers that the reference does not serve either. The headers of all codes",
        "are declared, so that every request can be read and written. Fusee's own requests are under",
        "[extensions](#extensions).",
        "",
        *table(("node", "requests", "served", "planned"), counts),
    ]
    lines += clients_section()
    lines += differences_section()
    for node in Node:
        lines += node_section(node)
    lines += extension_section()
    lines += reserved_section(reserved)
    lines += response_section()
    lines += header_section()
    return "\n".join(lines).rstrip() + "\n"


def metrics() -> str:
    """docs/metrics.md: the table of metrics, between the marks of the text that people write."""
    before, mark, rest = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").partition(METRICS_MARK)
    end_mark = "<!-- end -->"
    rows = [(f"`{metric.name}`", metric.kind.value, ", ".join(metric.labels), metric.help) for metric in catalogue.ALL]
    lines = table(("metric", "kind", "labels", "what it says"), rows)
    return before + mark + "\n\n" + "\n".join(lines) + "\n" + end_mark + rest.partition(end_mark)[2]


def spark_guide() -> str:
    """docs/spark.md, whose tables of columns and options are made and whose text is written."""
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    columns = table(
        ("column", "type", "what it is"),
        ((f"`{column.name}`", column.spark_type, column.about) for column in COLUMNS),
    )
    kafka = table(
        ("with kafkaCompatible", "type", "what it is"),
        ((f"`{column.name}`", column.spark_type, column.about) for column in KAFKA_COLUMNS),
    )
    written = table(
        ("column", "type", "what it is"),
        (
            (
                ", ".join(f"`{name}`" for name in (column.name, *column.aliases)),
                ", ".join(column.types).removesuffix(", varchar, char"),
                column.about,
            )
            for column in WRITE_COLUMNS
        ),
    )
    text = filled(text, "columns", [*columns, *kafka])
    text = filled(text, "options", option_rows(READ_OPTIONS))
    text = filled(text, "written columns", written)
    return filled(text, "write options", option_rows(WRITE_OPTIONS))


def option_rows(options: Iterable[Option]) -> list[str]:
    """Options as a table."""
    return table(
        ("option", "default", "for", "meaning"),
        (
            (
                ", ".join(f"`{name}`" for name in (option.name, *option.aliases)),
                option.default,
                option.where,
                option.about,
            )
            for option in options
            if option.about != "Spark's own"
        ),
    )


def filled(text: str, name: str, lines: Sequence[str]) -> str:
    """A document with these lines between the marks of this name."""
    begin = text.index("-->\n", text.index(f"<!-- {name}: ")) + len("-->\n")
    end = text.index(f"<!-- end of {name} -->")
    return text[:begin] + "\n" + "\n".join(lines).strip() + "\n\n" + text[end:]


DOCUMENTS = {
    "docs/compatibility.md": compatibility,
    "docs/metrics.md": metrics,
    "docs/spark.md": spark_guide,
    **{f"docs/diagrams/{name}.svg": drawing.svg for name, drawing in DRAWINGS.items()},
}


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 when a document is out of date")
    check = parser.parse_args(arguments).check
    stale = []
    for name, make in DOCUMENTS.items():
        path = root / name
        text = make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    if check and stale:
        print(f"out of date: {', '.join(stale)}. Run `make docs` and commit the result.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
