"""The drawings of docs/concepts.md: boxes and arrows as SVG, made by `make docs`."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

BOX_HEIGHT = 54
MARGIN = 16

_STYLE = """
.page{fill:#fbfcfe;stroke:#d9dee5}
.box{fill:#fff;stroke:#2563a8;stroke-width:1.5}
.server{fill:#e8f0fa}.kept{fill:#eef7f0;stroke:#3b8f5a}.outside{stroke:#8a94a0}
.name{font:600 14px system-ui,sans-serif;fill:#1d2530}
.note{font:12px system-ui,sans-serif;fill:#5c6773}
.word{font:12px system-ui,sans-serif;fill:#5c6773;paint-order:stroke;stroke:#fbfcfe;stroke-width:4}
.way{stroke:#5c6773;stroke-width:1.5;fill:none;marker-end:url(#tip)}
.dashed{stroke-dasharray:5 4}
"""


@dataclass(frozen=True)
class Box:
    """Something with a name and a line about it; `kind` is `server`, `kept`, `outside` or nothing."""

    x: int
    y: int
    name: str
    note: str = ""
    kind: str = ""
    width: int = 150

    def svg(self) -> str:
        middle = self.x + self.width / 2
        lines = [
            (
                f'<rect class="box {self.kind}" x="{self.x}" y="{self.y}" width="{self.width}" height="{BOX_HEIGHT}" '
                'rx="6"/>'
            ),
            (
                f'<text class="name" x="{middle}" y="{self.y + (23 if self.note else 32)}" text-anchor="middle">'
                f"{escape(self.name)}</text>"
            ),
        ]
        if self.note:
            lines.append(
                f'<text class="note" x="{middle}" y="{self.y + 41}" text-anchor="middle">{escape(self.note)}</text>'
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Way:
    """An arrow with words at its middle, moved by `lift` upwards."""

    start: tuple[int, int]
    end: tuple[int, int]
    note: str = ""
    lift: int = 6
    is_dashed: bool = False

    def svg(self) -> str:
        (x1, y1), (x2, y2) = self.start, self.end
        dashed = " dashed" if self.is_dashed else ""
        line = f'<path class="way{dashed}" d="M{x1} {y1} L{x2} {y2}"/>'
        if not self.note:
            return line
        place = f'x="{(x1 + x2) / 2}" y="{(y1 + y2) / 2 - self.lift}"'
        return f'{line}\n<text class="word" {place} text-anchor="middle">{escape(self.note)}</text>'


@dataclass(frozen=True)
class Drawing:
    """Boxes and ways on a page that is as large as they need."""

    title: str
    parts: tuple[Box | Way, ...]

    def svg(self) -> str:
        boxes = [part for part in self.parts if isinstance(part, Box)]
        width = max(box.x + box.width for box in boxes) + MARGIN
        height = max(box.y for box in boxes) + BOX_HEIGHT + MARGIN
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{_STYLE}</style>",
                (
                    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
                    'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#5c6773"/></marker></defs>'
                ),
                f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
                *(part.svg() for part in self.parts),
                "</svg>\n",
            ]
        )


CLUSTER = Drawing(
    "A cluster: name servers, broker groups of master and slave, producers and consumers",
    (
        Box(16, 210, "producers", "any client", "outside", 130),
        Box(290, 16, "name servers", "who has which topic", "server", 180),
        Box(290, 110, "broker-a, master", "takes and hands out", "server", 180),
        Box(290, 200, "broker-a, slave", "a copy of its log", "kept", 180),
        Box(290, 300, "broker-b, master", "takes and hands out", "server", 180),
        Box(290, 390, "broker-b, slave", "a copy of its log", "kept", 180),
        Box(640, 210, "consumers", "the members of a group", "outside", 180),
        Way((80, 208), (286, 46), "where is orders?", 16, is_dashed=True),
        Way((720, 208), (474, 46), "where is orders?", 16, is_dashed=True),
        Way((146, 226), (286, 140), "send", 10),
        Way((146, 246), (286, 322), "send", -18),
        Way((380, 164), (380, 198), "log", -2),
        Way((380, 354), (380, 388), "log", -2),
        Way((470, 138), (636, 222), "pull", 10),
        Way((470, 326), (636, 252), "pull", -18),
        Way((470, 228), (636, 236), "if the master is gone", 8, is_dashed=True),
        Way((470, 412), (680, 266), "if the master is gone", -30, is_dashed=True),
    ),
)

STORE = Drawing(
    "The way of a message through a broker",
    (
        Box(16, 70, "send", "from a producer", "outside", 120),
        Box(210, 70, "commit log", "every message, in order", "kept", 170),
        Box(460, 16, "consume queues", "topic, queue: position", "kept", 170),
        Box(460, 124, "index", "key: position", "kept", 170),
        Box(710, 16, "pull", "of a consumer", "outside", 120),
        Box(710, 124, "query", "by key, id or time", "outside", 120),
        Way((136, 97), (206, 97), "written"),
        Way((380, 84), (456, 50), "dispatch", 14),
        Way((380, 110), (456, 146), "dispatch", -24),
        Way((630, 43), (706, 43)),
        Way((630, 151), (706, 151)),
    ),
)

LIFE = Drawing(
    "What becomes of a message: queue, delay, transaction, retries, dead letters",
    (
        Box(16, 100, "send", "", "outside", 90),
        Box(200, 16, "delay level", "waits its time", "kept", 140),
        Box(200, 84, "half message", "waits for its verdict", "kept", 140),
        Box(440, 118, "queue of the topic", "in order", "server", 170),
        Box(700, 118, "consumer", "of a group", "outside", 130),
        Box(440, 206, "%RETRY%group", "10 s to 2 h later", "kept", 170),
        Box(700, 206, "%DLQ%group", "dead letters", "kept", 130),
        Way((106, 112), (196, 52), "delayed", 12),
        Way((106, 122), (196, 122), "transaction"),
        Way((106, 146), (436, 160), "at once", -16),
        Way((340, 56), (460, 116), "due", 8),
        Way((340, 126), (436, 138), "committed"),
        Way((610, 138), (696, 138), "delivered"),
        Way((700, 164), (600, 203), "failed", 4),
        Way((614, 226), (745, 176), "again", -8),
        Way((610, 242), (696, 242), "16 tries"),
    ),
)

PIPELINE = Drawing(
    "Topics as tables: from a live topic through Spark to an archive, a table and another topic",
    (
        Box(16, 70, "topic", "live, on brokers", "server", 130),
        Box(16, 150, "store directory", "without a broker", "kept", 130),
        Box(240, 100, "Spark", "batch, stream, SQL", "", 150),
        Box(490, 20, "Parquet archive", "by topic, date, hour", "kept", 160),
        Box(490, 100, "SQL", "live and archive as one", "outside", 160),
        Box(490, 180, "topic", "at least or exactly once", "server", 160),
        Way((146, 98), (236, 120), "ranges", 8),
        Way((146, 172), (236, 138)),
        Way((390, 114), (486, 54)),
        Way((390, 127), (486, 127)),
        Way((390, 140), (486, 200)),
    ),
)

DRAWINGS = {"cluster": CLUSTER, "store": STORE, "life": LIFE, "pipeline": PIPELINE}
