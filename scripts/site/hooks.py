"""Hooks of MkDocs: adds the pages that are made, and turns links between files into links between pages.

The documents are written for whoever reads them as files: they link to the README, the examples and the source by path.
On the site the first steps of the README, the examples and the changelog are pages; other files are named without a
link.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

from scripts.site.cli_reference import cli_reference
from scripts.site.python_reference import python_reference
from scripts.site.settings_reference import broker_reference, name_server_reference, store_reference

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(```|~~~)")
_ITEM = re.compile(r"^([-*] |\d+\. )")

REFERENCE: dict[str, Callable[[], str]] = {
    "reference/cli.md": cli_reference,
    "reference/python.md": python_reference,
    "reference/broker_settings.md": broker_reference,
    "reference/store_settings.md": store_reference,
    "reference/namesrv_settings.md": name_server_reference,
}

# Files outside of the documents that are pages of the site.
PAGES = {
    "README.md": "quickstart.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples/index.md",
} | {f"examples/{path.name}": f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.py")}


def quickstart() -> str:
    """The first steps of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^## Five minutes to a first message\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit("README.md has no section of first steps")
    return f"# Five minutes to a first message\n{found[1]}"


def _written(path: str) -> str:
    """The text of a page that is made of this file."""
    if path == "README.md":
        return quickstart()
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"# {path}\n\n```python\n{text.rstrip()}\n```\n" if path.endswith(".py") else text


def on_config(config: Any) -> Any:
    """Folders of the navigation become their pages, in the order of their names."""
    config.nav = [_opened(entry) for entry in config.nav]
    return config


def _opened(entry: Any) -> Any:
    ((title, target),) = entry.items()
    if isinstance(target, list):
        return {title: [_opened(each) for each in target]}
    if target.endswith("/"):
        return {
            title: [
                path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs" / target).glob("*.md"))
            ]
        }
    return entry


def on_files(files: Any, *, config: Any) -> Any:
    """Add what is made."""
    for name, make in REFERENCE.items():
        files.append(File.generated(config, name, content=make()))
    for path, name in PAGES.items():
        files.append(File.generated(config, name, content=with_links(_written(path), path, name)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """A document as the site wants it."""
    name = page.file.src_uri
    if page.file.generated_by is None:
        markdown = with_links(markdown, f"docs/{name}", name)
    return with_room_for_lists(markdown)


def with_links(text: str, path: str, page: str) -> str:
    """The text of a file with links that fit the page which it becomes; `path` is seen from the root."""

    def replaced(found: re.Match[str]) -> str:
        label, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target:
            return found[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if wanted in PAGES:
            # A heading of the README that is not among its first steps has no place here.
            linked = PAGES[wanted]
            anchor = "" if linked == "quickstart.md" else anchor
        elif wanted.startswith("docs/") and (ROOT / wanted).is_file():
            linked = wanted.removeprefix("docs/")
        else:
            return label
        label = _title(wanted) if label.endswith((".md", "/")) else label
        return f"[{label}]({posixpath.relpath(linked, posixpath.dirname(page) or '.')}{anchor})"

    return _outside_fences(text, lambda part: _LINK.sub(replaced, part))


def _title(path: str) -> str:
    """The heading of a document, in place of its path."""
    found = re.search(r"^# (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    return path if found is None else found[1]


def with_room_for_lists(text: str) -> str:
    """A blank line before each list: forges begin one without, Python-Markdown does not."""

    def roomy(part: str) -> str:
        lines: list[str] = []
        for line in part.split("\n"):
            before = lines[-1] if lines else ""
            if _ITEM.match(line) and before.strip() and not _ITEM.match(before) and not before.startswith(" "):
                lines.append("")
            lines.append(line)
        return "\n".join(lines)

    return _outside_fences(text, roomy)


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts: list[str] = []
    gathered: list[str] = []
    is_code = False

    def finish() -> None:
        if gathered:
            part = "\n".join(gathered)
            parts.append(part if is_code else change(part))
            gathered.clear()

    for line in text.split("\n"):
        if _FENCE.match(line.lstrip()):
            if is_code:
                gathered.append(line)
                finish()
            else:
                finish()
                gathered.append(line)
            is_code = not is_code
        else:
            gathered.append(line)
    finish()
    return "\n".join(parts)
