"""The files of config/ that hold a table: Java's JSON, saved without keeping the event loop waiting.

A file is one object: `dataVersion`, and one or more tables by key, pretty printed with tabs as FastJSON does, integer
keys bare. A table may have a million entries of which few change between two saves, so this keeps, beside the table
itself, the text of every entry as it is in the file. What changes is noted (`changed`); `begin` hands the notes to a
job, and that job, in a worker thread, makes the text of those entries only, joins all texts and writes the file:

    loop                                    worker
    changed(...), changed(...)
    begin(version) -> job      ---------->  job(): texts of what changed, join, write, sync, rename
    changed(...)                            (these wait for the next job)

One job at a time: while one is under way `begin` gives none, and what changed meanwhile stays noted. A job that fails
leaves the file as it was, and the next `begin` gives a job again. Values that are noted must not be altered later: give
a copy, or replace values instead of altering them.

Before a save the present file is checked, since a damaged one must not become the `.bak`. Reading it all would cost
more than writing, so a digest of what was written last is kept, and only a file that differs from it is read.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from fusee.errors import FuseeError, ProtocolError, StoreBusyError
from fusee.store.saved_document import SavedDocument
from fusee.wire.bodies.topic import DataVersion
from fusee.wire.lenient_json import decode_json, dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from fusee.clock import Clock
    from fusee.store.filesystem import FileSystem

TOPICS: Final = "topics.json"
SUBSCRIPTION_GROUPS: Final = "subscriptionGroup.json"
CONSUMER_OFFSETS: Final = "consumerOffset.json"

DOCUMENT_SIZE_MAX: Final = 1 << 30

T = TypeVar("T")


class TableFullError(FuseeError):
    """A table has as many entries as its setting allows."""


def next_version(version: DataVersion, clock: Clock, state_version: int = 0) -> DataVersion:
    """The version of a table after one more change."""
    return DataVersion(counter=version.counter + 1, state_version=state_version, timestamp=clock.time_ms())


class TableDocument(Generic[T]):
    """One file of config/ with its tables. `texts` says for each table how the text of an entry's value is made."""

    def __init__(
        self, path: Path, files: FileSystem, *, document_type: type[T], texts: Mapping[str, Callable[[Any], str]]
    ) -> None:
        self._file: SavedDocument[bytes] = SavedDocument(path, files, encode=_as_it_is, decode=self._readable)
        self._document_type = document_type
        self._texts = dict(texts)
        self._entries: dict[str, dict[str, str]] = {table: {} for table in sorted(texts)}
        self._changes: dict[str, dict[str, Any]] = {}
        self._loaded: T | None = None
        self._digest = b""
        self._is_saving = False
        self._is_unsaved = False
        self.on_dirty: Callable[[], object] | None = None
        """Called when something changed and nothing was noted before: the time to think of a save."""

    @property
    def path(self) -> Path:
        return self._file.path

    def load(self) -> T | None:
        """What the file says, or its `.bak`; None when there is none. Raises StoreCorruptError."""
        self._loaded = None
        self._file.load()
        loaded, self._loaded = self._loaded, None
        return loaded

    def loaded(self, table: str, key: str, value: Any) -> None:
        """Note that the file holds this entry."""
        self._entries[table][key] = self._entry(table, key, value)
        noted = self._changes.get(table)
        if noted is not None and noted.pop(key, None) is not None and not noted:
            del self._changes[table]

    def changed(self, table: str, key: str, value: Any) -> None:
        """Note that the entry is now this; None: that it is gone."""
        self.changed_all(table, {key: value})

    def changed_all(self, table: str, values: Mapping[str, Any]) -> None:
        """As `changed`, for several entries of one table."""
        if not values:
            return
        was_clean = not self._changes
        self._changes.setdefault(table, {}).update(values)
        if was_clean and self.on_dirty is not None:
            self.on_dirty()

    @property
    def is_dirty(self) -> bool:
        """Whether something is noted that no job has taken, or the last job failed."""
        return bool(self._changes) or self._is_unsaved

    @property
    def is_saving(self) -> bool:
        """Whether a job is under way."""
        return self._is_saving

    def begin(self, version: DataVersion) -> Callable[[], None] | None:
        """The job that writes the file, to be called once and in any thread; None when there is nothing to do now.

        The job raises StoreFullError or StoreError when the file could not be written.
        """
        if self._is_saving or not self.is_dirty:
            return None
        changes, self._changes = self._changes, {}
        self._is_saving = True
        self._is_unsaved = False

        def job() -> None:
            try:
                self._write(version, changes)
            except BaseException:
                self._is_unsaved = True
                raise
            finally:
                self._is_saving = False

        return job

    def save(self, version: DataVersion) -> None:
        """Write the file and return when it is on disk. Raises StoreBusyError while a job is under way."""
        if self._is_saving:
            raise StoreBusyError(f"{self.path} is being written by a worker; wait for it, then save")
        job = self.begin(version)
        if job is not None:
            job()

    def _write(self, version: DataVersion, changes: dict[str, dict[str, Any]]) -> None:
        for table, values in changes.items():
            entries = self._entries[table]
            for key, value in values.items():
                if value is None:
                    entries.pop(key, None)
                else:
                    entries[key] = self._entry(table, key, value)
        parts = [f'{{\n\t"dataVersion":{pretty(version, 1)}']
        for table, entries in self._entries.items():
            body = ",\n".join(entries.values())
            parts.append(f'\t"{table}":{{\n{body}\n\t}}' if body else f'\t"{table}":{{}}')
        content = (",\n".join(parts) + "\n}").encode("utf-8", "replace")
        self._file.save(content)
        self._digest = _digest(content)

    def _entry(self, table: str, key: str, value: Any) -> str:
        return f"\t\t{quoted(key)}:{self._texts[table](value)}"

    def _readable(self, content: bytes) -> bytes:
        """The content, when it is a document. Raises ValueError when it is none."""
        if self._digest and self._digest == _digest(content):
            return content
        try:
            self._loaded = decode_document(content, self._document_type)
        except ProtocolError as error:
            raise ValueError(str(error)) from error
        return content


def _as_it_is(content: bytes) -> bytes:
    return content


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


_BARE_KEY: Final = re.compile(rb"([{,][ \t\r\n]*)(-?[0-9]+):")


def decode_document(content: bytes, document_type: type[T]) -> T:
    """A document as files and answers to slaves have it. Raises ProtocolError."""
    # Bare integer keys are the only thing that is no JSON in these files, and the lenient reader takes a second for two
    # megabytes of them. Were quotes put into a string by mistake, the text would no longer be JSON.
    if b"$ref" not in content:
        try:
            return msgspec.json.decode(_BARE_KEY.sub(rb'\1"\2":', content), type=document_type)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass  # the general way decides, and finds the words
    return decode_json(content, document_type, size_max=DOCUMENT_SIZE_MAX)


_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*").fullmatch


def quoted(text: str) -> str:
    """The text as a JSON string, escaped as FastJSON does."""
    return f'"{text}"' if _PLAIN(text) else dumps_fastjson(text).decode()


@cache  # one entry per struct type
def _fields(struct_type: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """(attribute, `"wireName":`) by wire name."""
    named = sorted((field.encode_name, field.name) for field in msgspec.structs.fields(struct_type))
    return tuple((attribute, f'"{wire_name}":') for wire_name, attribute in named)


def pretty(value: Any, depth: int) -> str:
    """FastJSON's pretty print of this value, whose first line stands behind `depth` tabs; nulls are left out."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, msgspec.Struct):
        parts = [
            name + pretty(item, depth + 1)
            for attribute, name in _fields(type(value))
            if (item := getattr(value, attribute)) is not None
        ]
        return _block("{", parts, "}", depth)
    if isinstance(value, dict):
        parts = [
            f"{quoted(key) if isinstance(key, str) else key}:{pretty(item, depth + 1)}"
            for key, item in value.items()
            if item is not None
        ]
        return _block("{", parts, "}", depth)
    if isinstance(value, list):
        return _block("[", [pretty(item, depth + 1) for item in value], "]", depth)
    return dumps_fastjson(value).decode()


def _block(first: str, parts: list[str], last: str, depth: int) -> str:
    if not parts:
        return first + last
    indent = "\n" + "\t" * depth
    inner = indent + "\t"
    return f"{first}{inner}{(',' + inner).join(parts)}{indent}{last}"


class DocumentTable:
    """A table that is one document, with a version: how it is saved."""

    _document: TableDocument[Any]
    _version: DataVersion

    @property
    def version(self) -> DataVersion:
        """How new the table is."""
        return self._version

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes that are not saved."""
        return self._document.is_dirty

    def begin_save(self) -> Callable[[], None] | None:
        """The job that saves, for a worker thread; None when nothing changed or one is under way."""
        return self._document.begin(self._version)

    def save(self) -> None:
        """Save what changed and return when it is on disk. Raises StoreFullError, StoreBusyError or StoreError."""
        self._document.save(self._version)

    @property
    def on_dirty(self) -> Callable[[], object] | None:
        """Called when something changed and all was saved or being saved before."""
        return self._document.on_dirty

    @on_dirty.setter
    def on_dirty(self, listener: Callable[[], object] | None) -> None:
        self._document.on_dirty = listener
