"""One small file that is replaced as a whole: the JSON files of config/, each with its `.bak` (RocketMQ issue 3401).

Saving: the new content goes to a file beside, synced; the present one becomes the `.bak`; the new one takes its name;
the folder is synced. At every moment one of the two names holds a whole document, the last one saved or the one before.
Loading takes the first that can be read, the document or its `.bak`, as the reference does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from fusee.errors import StoreCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fusee.store.filesystem import FileSystem

T = TypeVar("T")


class SavedDocument(Generic[T]):
    """A document at a path. `decode` raises ValueError for what it cannot read; an empty file is never a document."""

    def __init__(
        self, path: Path, files: FileSystem, *, encode: Callable[[T], bytes], decode: Callable[[bytes], T]
    ) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self._new_path = path.with_name(path.name + ".tmp")
        self._files = files
        self._encode = encode
        self._decode = decode

    def load(self) -> T | None:
        """The document; None when none was ever saved. Raises StoreCorruptError when none of the two can be read."""
        problems: list[str] = []
        for path in (self.path, self.backup_path):
            if not self._files.exists(path):
                continue
            content = self._files.read_file(path)
            if not content.strip(b"\0 \t\r\n"):
                problems.append(f"{path} is empty")
                continue
            try:
                return self._decode(content)
            except ValueError as error:
                problems.append(f"{path}: {error}")
        if problems:
            raise StoreCorruptError(
                f"{'; '.join(problems)}. Restore one of them from a backup, or remove both to start without"
            )
        return None

    def save(self, document: T) -> None:
        """Replace the document, durably. Raises StoreFullError or StoreError; the present one is untouched then."""
        files = self._files
        content = self._encode(document)
        files.make_folder(self.path.parent)
        files.remove(self._new_path)
        file = files.open(self._new_path, size=len(content))
        try:
            file.write(content, 0)
            file.sync()
        finally:
            file.close()
        # The name of the new one must be on disk before the present one loses its own.
        files.sync_folder(self.path.parent)
        if files.exists(self.path) and self._is_document(self.path):
            files.rename(self.path, self.backup_path)
            files.sync_folder(self.path.parent)
        files.rename(self._new_path, self.path)
        files.sync_folder(self.path.parent)

    def _is_document(self, path: Path) -> bool:
        """Whether this would make a good backup: a damaged one must not take the place of a good one."""
        try:
            self._decode(self._files.read_file(path))
        except ValueError:
            return False
        return True
