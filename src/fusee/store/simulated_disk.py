"""The faulty twin of the file system: a disk in memory that forgets what was not synced, tears writes and fills up.

Theory of operation
-------------------
Every file has two contents: what programs see (the page cache), and what is on the platter. A write changes the first
and is remembered as pending; `File.sync` moves the pending writes of that file to the platter. Names are pending in
their folder until `sync_folder`. A file is reached from the root, so one whose name was not synced is lost though its
bytes were, and one whose name survived may be empty: its size is pending as well.

`crash` gives the disk that a machine would find after a power failure. What was synced is there; of what was pending
anything may be: everything, nothing, all up to some moment, or each 4-KiB page or 512-byte sector by itself, the last
write to it torn at any byte. Which of these is drawn from the seed, and the same seed gives the same disk. That is
harsher than a journaling file system, which keeps names in order; code that passes here needs none of that. `kill`
gives the disk that the next process would find after the end of this one: nothing is lost, nothing was synced.

Every operation that changes something is a numbered step (from 1): create, grow, write, clear, sync, make_folder,
remove, remove_folder, rename, sync_folder. A workload is run once to count its steps, then once per step with
`stop_at`, which raises SimulatedCrash in the midst of that step and at every later one, so that no `finally` can tidy
up behind the crash. Faults are set by step (`fail_at`), by count (`fail_sync`, `fail_write`) or by `capacity`.

A failed sync drops the pending writes, as Linux does: readers go on to see them, the next sync succeeds, and they never
reach the platter.

Space is counted in 4-KiB blocks that were written to, so sparse files cost nothing; names cost nothing.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections import Counter
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from fusee.clock import ManualClock
from fusee.errors import StoreError
from fusee.store.filesystem import Space, store_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from fusee.clock import Clock

PAGE_SIZE: Final = 4096
SECTOR_SIZE: Final = 512
UNLIMITED_CAPACITY: Final = 1 << 44
_LAZY_SIZE_MIN: Final = 1 << 20
_EMPTY_PAGE: Final = bytes(PAGE_SIZE)


class SimulatedCrash(BaseException):
    """The machine stops here. No Exception, so that nothing on the way out takes it for an error and goes on."""


class Outcome(Enum):
    """What a crash leaves of the pending writes and names."""

    NOTHING = "only what was synced"
    EVERYTHING = "all of it, as if everything had been synced"
    MOMENT = "all up to some moment, the write of that moment torn"
    NAMES = "every name, but no contents"
    CONTENTS = "all contents, but no name"
    SCATTERED = "each name, file, page or sector by itself"


class Operation(NamedTuple):
    """One step of the history."""

    step: int
    kind: str
    path: Path
    position: int = 0
    size: int = 0
    target: Path | None = None

    def __str__(self) -> str:
        text = f"{self.step} {self.kind} {self.path}"
        if self.kind in ("write", "clear", "create", "grow"):
            text += f" [{self.position}, {self.position + self.size})"
        return f"{text} -> {self.target}" if self.target is not None else text


class _Write(NamedTuple):
    step: int
    position: int
    data: bytes


class _Image:
    """Sparse contents: pages that were never written read as zeros."""

    __slots__ = ("pages", "size")

    def __init__(self, size: int = 0, pages: dict[int, bytes] | None = None) -> None:
        self.size = size
        self.pages: dict[int, bytes] = pages if pages is not None else {}

    def copy(self) -> _Image:
        return _Image(self.size, dict(self.pages))

    def write(self, position: int, data: bytes) -> None:
        start = 0
        while start < len(data):
            number, inside = divmod(position + start, PAGE_SIZE)
            part = data[start : start + PAGE_SIZE - inside]
            if len(part) == PAGE_SIZE:
                self.pages[number] = part
            else:
                page = self.pages.get(number, _EMPTY_PAGE)
                self.pages[number] = page[:inside] + part + page[inside + len(part) :]
            start += len(part)


class _FileNode:
    """A file: what is seen, what is on the platter, and the way from one to the other."""

    __slots__ = ("blocks", "data", "handles", "is_linked", "modified_ms", "pending", "platter", "size_step")

    def __init__(self, size: int, modified_ms: int) -> None:
        self.data = _buffer(size)
        self.platter = _Image()
        self.pending: list[_Write] = []
        self.size_step: int | None = None
        self.blocks: set[int] = set()
        self.modified_ms = modified_ms
        self.handles = 0
        self.is_linked = True

    def grow(self, size: int, step: int) -> None:
        grown = _buffer(size)
        grown[: len(self.data)] = self.data[:]
        self.data = grown
        self.size_step = step

    def sync(self) -> None:
        pending, self.pending = self.pending, []
        self.platter.size = len(self.data)
        self.size_step = None
        for write in pending:
            self.platter.write(write.position, write.data)


class _Rename(NamedTuple):
    """One change of names, whole or not at all: a name leaves a folder, a node gets a name; either may be missing."""

    step: int
    old_folder: _FolderNode | None
    old_name: str
    new_folder: _FolderNode | None
    new_name: str
    node: _FileNode | _FolderNode | None


class _FolderNode:
    __slots__ = ("entries", "pending", "platter")

    def __init__(self) -> None:
        self.entries: dict[str, _FileNode | _FolderNode] = {}
        self.platter: dict[str, _FileNode | _FolderNode] = {}
        self.pending: list[_Rename] = []


_Node = _FileNode | _FolderNode


class _Fault(NamedTuple):
    code: int
    tear_at: int


class _CountedFault:
    __slots__ = ("fault", "kind", "left", "under")

    def __init__(self, kind: str, left: int, fault: _Fault, under: Path | None) -> None:
        self.kind = kind
        self.left = left
        self.fault = fault
        self.under = under


class _SimulatedFile:
    def __init__(self, disk: SimulatedDisk, path: Path, node: _FileNode) -> None:
        self.path = path
        self.size = len(node.data)
        self._disk = disk
        self._node = node
        self._is_open = True
        node.handles += 1

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        self._check_open()
        content = bytes(data)
        if position + len(content) > self.size:
            raise StoreError(f"{self.path}: {len(content)} bytes at {position} do not fit into {self.size}")
        if content:
            self._disk._write(self._node, self.path, position, content)

    def write_all(self, parts: Sequence[bytes | memoryview], position: int) -> None:
        for part in parts:
            self.write(part, position)
            position += len(part)

    def read(self, position: int, size: int) -> bytes:
        self._check_open()
        return bytes(self._node.data[position : position + size])

    def view(self) -> memoryview:
        self._check_open()
        return memoryview(self._node.data).toreadonly()

    def written_ranges(self, start: int) -> Sequence[tuple[int, int]]:
        self._check_open()
        return [(start, self.size)] if start < self.size else []

    def forget(self, start: int, size: int) -> None:
        self._check_open()

    def clear_from(self, position: int) -> None:
        self._check_open()
        self._disk._clear(self._node, self.path, position)

    def set_blocks_aside(self) -> None:
        self._check_open()

    def sync(self) -> None:
        self._disk._sync(self._node, self.path)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._node.handles -= 1
            self._disk._release(self._node)

    def _check_open(self) -> None:
        if not self._is_open:
            raise store_error(OSError(errno.EBADF, os.strerror(errno.EBADF)), self.path, 0)


class _SimulatedLock:
    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedDisk:
    """A file system in memory that can crash, fail and fill up; see the module for what that means."""

    def __init__(self, clock: Clock | None = None, *, capacity: int = UNLIMITED_CAPACITY) -> None:
        self.clock: Clock = clock or ManualClock()
        self.capacity = capacity
        """Bytes that fit; may be changed at any time."""
        self.operations: list[Operation] = []
        self.counts: Counter[str] = Counter()
        """Steps by kind: how often a workload writes and syncs."""
        self._root = _FolderNode()
        self._used = 0
        self._held: set[Path] = set()
        self._stop: tuple[int, int] | None = None
        self._stopped = False
        self._faults: dict[int, _Fault] = {}
        self._counted_faults: list[_CountedFault] = []

    # What a test does to the disk.

    @property
    def steps(self) -> int:
        """Steps so far."""
        return len(self.operations)

    @property
    def history(self) -> str:
        """Every step as a line of text."""
        return "\n".join(str(operation) for operation in self.operations)

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self._used

    def stop_at(self, step: int, *, tear_at: int = 0) -> None:
        """Raise SimulatedCrash in the midst of this step and at any step after it.

        Of a write, the first `tear_at` bytes take place before; any other step takes place when `tear_at` is not 0.
        """
        self._stop = (step, tear_at)

    def fail_at(self, step: int, code: int, *, tear_at: int = 0) -> None:
        """Let this step fail with this errno, once. Of a write, the first `tear_at` bytes take place before."""
        self._faults[step] = _Fault(code, tear_at)

    def fail_sync(self, nth: int = 1, *, code: int = errno.EIO, under: Path | None = None) -> None:
        """Let the nth sync of a file from now on fail, once; `under` counts only files in and below this folder."""
        self._counted_faults.append(_CountedFault("sync", nth, _Fault(code, 0), under))

    def fail_write(self, nth: int = 1, *, code: int = errno.EIO, tear_at: int = 0, under: Path | None = None) -> None:
        """Let the nth write from now on fail, once, after its first `tear_at` bytes."""
        self._counted_faults.append(_CountedFault("write", nth, _Fault(code, tear_at), under))

    def crash(self, seed: int = 0, outcome: Outcome | None = None) -> SimulatedDisk:
        """What is there after a power failure; without `outcome`, the seed draws that as well."""
        chance = Random(seed)
        drawn = chance.choice(tuple(Outcome)) if outcome is None else outcome
        return _Aftermath(self, chance, drawn).disk()

    def kill(self) -> SimulatedDisk:
        """What the next process finds when this one just ends: everything, and the same still pending."""
        return _Aftermath(self, Random(0), None).disk()

    def contents(self) -> dict[str, bytes]:
        """Every file that can be reached, by path."""
        return {path: bytes(node.data[:]) for path, node in _files_below(self._root, "")}

    # What a store asks of a file system.

    def open(self, path: Path, *, size: int | None = None) -> _SimulatedFile:
        folder, name = self._parent(path)
        node = folder.entries.get(name)
        if isinstance(node, _FolderNode):
            raise _failure(errno.EISDIR, path)
        if node is None:
            if size is None:
                raise _failure(errno.ENOENT, path)
            made = _FileNode(0, self.clock.time_ms())
            # Two calls of the operating system, and a crash may come between them.
            if self._step(Operation(self.steps + 1, "create", path)):
                self._rename(None, "", folder, name, made)
            self._stop_if_stopped()
            node = made
        if size is not None and size > len(node.data):
            if self._step(Operation(self.steps + 1, "grow", path, len(node.data), size - len(node.data))):
                node.grow(size, self.steps)
            self._stop_if_stopped()
        return _SimulatedFile(self, path, node)

    def names(self, folder: Path) -> list[str]:
        node = self._find(folder)
        if isinstance(node, _FileNode):
            raise _failure(errno.ENOTDIR, folder)
        return sorted(node.entries) if node is not None else []

    def is_folder(self, path: Path) -> bool:
        return isinstance(self._find(path), _FolderNode)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def size(self, path: Path) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: Path) -> int:
        return self._file(path).modified_ms

    def make_folder(self, path: Path) -> None:
        missing: list[Path] = []
        folder = path
        while self._find(folder) is None:
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            parent, name = self._parent(folder)
            if self._step(Operation(self.steps + 1, "make_folder", folder)):
                self._rename(None, "", parent, name, _FolderNode())
            self._stop_if_stopped()
            self.sync_folder(folder.parent)

    def remove(self, path: Path) -> None:
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, _FolderNode):
            raise _failure(errno.EISDIR, path)
        folder, name = self._parent(path)
        if self._step(Operation(self.steps + 1, "remove", path)):
            self._rename(folder, name, None, "", None)
        self._stop_if_stopped()

    def remove_folder(self, path: Path) -> None:
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, _FileNode):
            raise _failure(errno.ENOTDIR, path)
        if node.entries:
            raise _failure(errno.ENOTEMPTY, path)
        folder, name = self._parent(path)
        if self._step(Operation(self.steps + 1, "remove_folder", path)):
            self._rename(folder, name, None, "", None)
        self._stop_if_stopped()

    def rename(self, source: Path, target: Path) -> None:
        node = self._find(source)
        if node is None:
            raise _failure(errno.ENOENT, source)
        old_folder, old_name = self._parent(source)
        new_folder, new_name = self._parent(target)
        if isinstance(new_folder.entries.get(new_name), _FolderNode):
            raise _failure(errno.EISDIR, target)
        if self._step(Operation(self.steps + 1, "rename", source, target=target)):
            self._rename(old_folder, old_name, new_folder, new_name, node)
        self._stop_if_stopped()

    def sync_folder(self, folder: Path) -> None:
        node = self._find(folder)
        if node is None:
            raise _failure(errno.ENOENT, folder)
        if isinstance(node, _FileNode):
            raise _failure(errno.ENOTDIR, folder)
        if self._step(Operation(self.steps + 1, "sync_folder", folder)):
            for change in tuple(node.pending):
                _settle(change)
        self._stop_if_stopped()

    def read_file(self, path: Path) -> bytes:
        return bytes(self._file(path).data[:])

    def lock(self, path: Path) -> _SimulatedLock:
        if path in self._held:
            raise StoreError(
                f"{path} is held by another process: this store is open already. Stop that broker, or use another "
                "store path"
            )
        file = self.open(path, size=len(b"lock"))
        file.write(b"lock", 0)
        file.close()
        self._held.add(path)
        return _SimulatedLock(self._held, path)

    def space(self, path: Path) -> Space:
        return Space(self.capacity, max(self.capacity - self._used, 0))

    # How a step takes place.

    def _step(self, operation: Operation) -> bool:
        """Enter a step in the history; whether it takes place. Raises when it fails.

        A step that takes place although the disk stops in it is followed by `_stop_if_stopped`.
        """
        if self._stopped:
            raise SimulatedCrash(f"stopped before {operation}")
        self.operations.append(operation)
        self.counts[operation.kind] += 1
        if self._stop is not None and operation.step >= self._stop[0]:
            self._stopped = True
            return self._stop[1] > 0
        fault = self._fault(operation)
        if fault is not None:
            raise _failure(fault.code, operation.path)
        return True

    def _stop_if_stopped(self) -> None:
        if self._stopped:
            raise SimulatedCrash(f"stopped at {self.operations[-1]}")

    def _fault(self, operation: Operation) -> _Fault | None:
        fault = self._faults.pop(operation.step, None)
        for counted in tuple(self._counted_faults):
            if counted.kind != operation.kind:
                continue
            if counted.under is not None and not operation.path.is_relative_to(counted.under):
                continue
            counted.left -= 1
            if counted.left == 0:
                self._counted_faults.remove(counted)
                fault = fault or counted.fault
        return fault

    def _write(self, node: _FileNode, path: Path, position: int, data: bytes, kind: str = "write") -> None:
        if self._stopped:
            raise SimulatedCrash(f"stopped before a write to {path}")
        operation = Operation(self.steps + 1, kind, path, position, len(data))
        self.operations.append(operation)
        self.counts[kind] += 1
        if self._stop is not None and operation.step >= self._stop[0]:
            self._stopped = True
            self._apply(node, operation, data[: self._stop[1]])
            raise SimulatedCrash(f"stopped at {operation} after {min(self._stop[1], len(data))} bytes")
        fault = self._fault(operation)
        if fault is not None:
            self._apply(node, operation, data[: fault.tear_at])
            raise store_error(OSError(fault.code, os.strerror(fault.code)), path, len(data))
        if self._apply(node, operation, data) < len(data):
            raise store_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), path, len(data))

    def _apply(self, node: _FileNode, operation: Operation, data: bytes) -> int:
        """Write as many of these bytes as there is space for; how many."""
        position = operation.position
        first = position // PAGE_SIZE
        for number in range(first, (position + len(data) - 1) // PAGE_SIZE + 1 if data else first):
            if number not in node.blocks:
                if self._used + PAGE_SIZE > self.capacity:
                    data = data[: max(number * PAGE_SIZE - position, 0)]
                    break
                node.blocks.add(number)
                self._used += PAGE_SIZE
        if data:
            node.data[position : position + len(data)] = data
            node.pending.append(_Write(operation.step, position, data))
            node.modified_ms = self.clock.time_ms()
        return len(data)

    def _clear(self, node: _FileNode, path: Path, position: int) -> None:
        """Zeros over every block that was written, one step for each run of blocks."""
        end = len(node.data)
        blocks = sorted(number for number in node.blocks if (number + 1) * PAGE_SIZE > position)
        for first, last in _runs(blocks):
            start = max(first * PAGE_SIZE, position)
            self._write(node, path, start, bytes(min((last + 1) * PAGE_SIZE, end) - start), "clear")

    def _sync(self, node: _FileNode, path: Path) -> None:
        try:
            takes_place = self._step(Operation(self.steps + 1, "sync", path))
        except StoreError:
            node.pending.clear()
            raise
        if takes_place:
            node.sync()
        self._stop_if_stopped()

    def _rename(
        self,
        old_folder: _FolderNode | None,
        old_name: str,
        new_folder: _FolderNode | None,
        new_name: str,
        node: _Node | None,
    ) -> None:
        change = _Rename(self.steps, old_folder, old_name, new_folder, new_name, node)
        gone: list[_Node | None] = []
        if old_folder is not None:
            taken = old_folder.entries.pop(old_name)
            old_folder.pending.append(change)
            if node is None:
                gone.append(taken)
        if new_folder is not None and node is not None:
            gone.append(new_folder.entries.get(new_name))
            new_folder.entries[new_name] = node
            if new_folder is not old_folder:
                new_folder.pending.append(change)
        for lost in gone:
            if isinstance(lost, _FileNode) and lost is not node:
                lost.is_linked = False
                self._release(lost)

    def _release(self, node: _FileNode) -> None:
        if not node.is_linked and not node.handles:
            self._used -= len(node.blocks) * PAGE_SIZE
            node.blocks = set()

    def _find(self, path: Path) -> _Node | None:
        node: _Node = self._root
        for name in path.parts:
            if name == path.anchor:
                continue
            if isinstance(node, _FileNode):
                return None
            found = node.entries.get(name)
            if found is None:
                return None
            node = found
        return node

    def _parent(self, path: Path) -> tuple[_FolderNode, str]:
        node = self._find(path.parent)
        if node is None:
            raise _failure(errno.ENOENT, path)
        if isinstance(node, _FileNode):
            raise _failure(errno.ENOTDIR, path)
        return node, path.name

    def _file(self, path: Path) -> _FileNode:
        node = self._find(path)
        if node is None:
            raise _failure(errno.ENOENT, path)
        if isinstance(node, _FolderNode):
            raise _failure(errno.EISDIR, path)
        return node


class _Aftermath:
    """Makes the disk that is found after a crash (or, without an outcome, after the end of a process)."""

    def __init__(self, before: SimulatedDisk, chance: Random, outcome: Outcome | None) -> None:
        self._before = before
        self._chance = chance
        self._outcome = outcome
        self._moment = chance.randint(0, before.steps) if outcome is Outcome.MOMENT else 0
        self._nodes: dict[int, _Node] = {}
        self._decisions: dict[int, bool] = {}
        self._changes: dict[int, _Rename] = {}
        self._after = SimulatedDisk(before.clock, capacity=before.capacity)

    def disk(self) -> SimulatedDisk:
        root = self._copy(self._before._root)
        assert isinstance(root, _FolderNode)
        self._after._root = root
        self._after._used = sum(len(node.blocks) * PAGE_SIZE for _, node in _files_below(root, ""))
        return self._after

    def _copy(self, node: _Node) -> _Node:
        copy = self._nodes.get(id(node))
        if copy is None:
            if isinstance(node, _FileNode):
                copy = self._nodes[id(node)] = self._copied_file(node)
            else:
                copy = self._nodes[id(node)] = _FolderNode()
                self._fill_folder(node, copy)
        return copy

    def _fill_folder(self, folder: _FolderNode, copy: _FolderNode) -> None:
        if self._outcome is None:
            copy.entries = {name: self._copy(node) for name, node in folder.entries.items()}
            copy.platter = {name: self._copy(node) for name, node in folder.platter.items()}
            copy.pending = [self._copied_change(change) for change in folder.pending]
            return
        survivors = dict(folder.platter)
        for change in folder.pending:
            if self._name_survives(change):
                if change.old_folder is folder:
                    survivors.pop(change.old_name, None)
                if change.new_folder is folder and change.node is not None:
                    survivors[change.new_name] = change.node
        copy.entries = {name: self._copy(node) for name, node in sorted(survivors.items())}
        copy.platter = dict(copy.entries)

    def _copied_change(self, change: _Rename) -> _Rename:
        copy = self._changes.get(id(change))
        if copy is None:
            copy = self._changes[id(change)] = change._replace(
                step=0,
                old_folder=self._copied_folder(change.old_folder),
                new_folder=self._copied_folder(change.new_folder),
                node=self._copy(change.node) if change.node is not None else None,
            )
        return copy

    def _copied_folder(self, folder: _FolderNode | None) -> _FolderNode | None:
        copy = self._copy(folder) if folder is not None else None
        assert copy is None or isinstance(copy, _FolderNode)
        return copy

    def _name_survives(self, change: _Rename) -> bool:
        match self._outcome:
            case Outcome.EVERYTHING | Outcome.NAMES:
                return True
            case Outcome.MOMENT:
                return change.step <= self._moment
            case Outcome.SCATTERED:
                # A change that concerns two folders is one decision.
                return self._decisions.setdefault(id(change), self._chance.random() < 0.5)
            case _:
                return False

    def _copied_file(self, node: _FileNode) -> _FileNode:
        if self._outcome is None:
            copy = _FileNode(len(node.data), node.modified_ms)
            copy.data[:] = node.data[:]
            copy.platter = node.platter.copy()
            copy.pending = [write._replace(step=0) for write in node.pending]
            copy.size_step = 0 if node.size_step is not None else None
            copy.blocks = set(node.blocks)
            return copy
        image = self._survivor(node)
        copy = _FileNode(image.size, node.modified_ms)
        for number, page in image.pages.items():
            start = number * PAGE_SIZE
            part = page[: max(image.size - start, 0)]
            if part:
                copy.data[start : start + len(part)] = part
                copy.blocks.add(number)
        copy.platter = _Image(image.size, {number: image.pages[number] for number in copy.blocks})
        return copy

    def _survivor(self, node: _FileNode) -> _Image:
        image = node.platter.copy()
        pending = node.pending
        match self._outcome:
            case Outcome.NOTHING | Outcome.NAMES:
                return image
            case Outcome.EVERYTHING | Outcome.CONTENTS:
                kept: Iterable[_Write] = pending
                size_survives = True
            case Outcome.MOMENT:
                kept = self._until(pending, self._moment)
                size_survives = node.size_step is None or node.size_step <= self._moment
            case _:
                kept = self._scattered(pending)
                size_survives = self._chance.random() < 0.75
        if size_survives:
            image.size = len(node.data)
        for write in kept:
            image.write(write.position, write.data)
        return image

    def _until(self, pending: list[_Write], moment: int) -> Iterator[_Write]:
        for write in pending:
            if write.step < moment:
                yield write
            elif write.step == moment:
                yield self._torn(write)

    def _scattered(self, pending: list[_Write]) -> list[_Write]:
        if not pending:
            return []
        manner = self._chance.choice(("none", "all", "prefix", "pages", "sectors"))
        if manner == "none":
            return []
        if manner == "all":
            return pending
        if manner == "prefix":
            count = self._chance.randrange(len(pending))
            return [*pending[:count], self._torn(pending[count])]
        unit = PAGE_SIZE if manner == "pages" else SECTOR_SIZE
        by_unit: dict[int, list[_Write]] = {}
        for write in pending:
            for piece in _pieces(write, unit):
                by_unit.setdefault(piece.position // unit, []).append(piece)
        kept: list[_Write] = []
        for _, pieces in sorted(by_unit.items()):
            count = self._chance.randint(0, len(pieces))
            kept += pieces[:count]
            if count < len(pieces) and self._chance.random() < 0.25:
                kept.append(self._torn(pieces[count]))
        return kept

    def _torn(self, write: _Write) -> _Write:
        return write._replace(data=write.data[: self._chance.randint(0, len(write.data))])


def _buffer(size: int) -> bytearray | mmap.mmap:
    """Zeros; a large buffer takes memory only where it is written to."""
    return mmap.mmap(-1, size) if size >= _LAZY_SIZE_MIN else bytearray(size)


def _settle(change: _Rename) -> None:
    """Put a change of names on the platter, in both folders that it concerns."""
    if change.old_folder is not None:
        change.old_folder.platter.pop(change.old_name, None)
        _forget(change.old_folder, change)
    if change.new_folder is not None and change.node is not None:
        change.new_folder.platter[change.new_name] = change.node
        _forget(change.new_folder, change)


def _forget(folder: _FolderNode, change: _Rename) -> None:
    # By identity: two changes may be equal.
    folder.pending = [other for other in folder.pending if other is not change]


def _files_below(folder: _FolderNode, prefix: str) -> Iterator[tuple[str, _FileNode]]:
    for name, node in sorted(folder.entries.items()):
        path = f"{prefix}/{name}"
        if isinstance(node, _FileNode):
            yield path, node
        else:
            yield from _files_below(node, path)


def _pieces(write: _Write, unit: int) -> Iterator[_Write]:
    start = 0
    while start < len(write.data):
        position = write.position + start
        size = unit - position % unit
        yield _Write(write.step, position, write.data[start : start + size])
        start += size


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    start = 0
    for index, number in enumerate(numbers):
        if index + 1 == len(numbers) or numbers[index + 1] != number + 1:
            yield numbers[start], number
            start = index + 1


def _failure(code: int, path: Path) -> StoreError:
    return store_error(OSError(code, os.strerror(code)), path, 0)
