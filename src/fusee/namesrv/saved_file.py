"""One small file that is replaced as a whole and survives a crash at any point.

To save: the new content goes to `<path>.tmp` and the one before to `<path>.bak.tmp`, each with fsync;
then `.bak.tmp` is renamed to `.bak` and `.tmp` to the path, and the folder is synced. So the path always
holds a complete old or new content, and `.bak` the complete one before. To load: the path, else `.bak`
when the path is missing or damaged (the Java name server deletes before it renames, so a crash there
leaves only `.bak`).

The file system is a parameter: a test passes one that fails.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from fusee.errors import ConfigError, FuseeError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class FileSystem(Protocol):
    """The operations that saving needs. All raise OSError."""

    def read(self, path: Path) -> bytes | None:
        """The content, or None when there is no such file."""
        ...

    def write(self, path: Path, content: bytes) -> None:
        """Make or overwrite the file, and return when the content is on disk."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Put the source in the place of the target, all at once."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in this folder are on disk."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Make the folder and those above it where they are missing."""
        ...


class OsFileSystem:
    """The file system of this machine."""

    __slots__ = ()

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: Path, content: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, opened with its mode
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)


class SavedFile:
    """A path, its previous content, and how to replace the one by the other."""

    def __init__(self, path: str, *, file_system: FileSystem | None = None, size_max: int = 256 * 1024 * 1024) -> None:
        self.path = Path(path).expanduser()
        self._files = file_system if file_system is not None else OsFileSystem()
        self._size_max = size_max
        self._content: bytes | None = None

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        """What `decode` makes of the content; None when neither the file nor its backup exists.

        `decode` raises a FuseeError for content that is damaged. Raises ConfigError when the file or its
        only remaining copy cannot be read.
        """
        backup = self._beside(".bak")
        damage: list[str] = []
        for path in (self.path, backup):
            try:
                content = self._files.read(path)
                if content is None:
                    continue
                if len(content) > self._size_max:
                    raise ConfigError(f"{len(content)} bytes are more than the limit of {self._size_max}")
                value = decode(content)
            except (OSError, FuseeError) as error:
                damage.append(f"{path}: {error}")
                continue
            self._content = content
            return value
        if damage:
            raise ConfigError(
                f"cannot load {self.path} or its backup: {'; '.join(damage)}. Repair the file, or move it "
                f"and {backup} away to start without it"
            )
        return None

    def save(self, content: bytes) -> None:
        """Replace the content. Raises OSError; then the path holds the old content, rarely the new."""
        new, backup, backup_new = self._beside(".tmp"), self._beside(".bak"), self._beside(".bak.tmp")
        folder = self.path.parent
        self._files.make_folder(folder)
        self._files.write(new, content)
        if self._content is not None:
            self._files.write(backup_new, self._content)
            self._files.rename(backup_new, backup)
        self._files.rename(new, self.path)
        self._content = content
        self._files.sync_folder(folder)

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)
