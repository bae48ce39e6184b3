"""The mark by which a reader sees that it is on this machine, and may read the files of the store itself.

A path alone proves nothing: another machine may have a store under the same one. So the broker writes random text into
a file of its store that only its own user may read, and tells both to whoever asks. Who finds this text at this path
sees the same files as the broker, and is allowed to. It is written anew by every start, when somebody first asks.
"""

from __future__ import annotations

import logging
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)


class LocalMark:
    """The mark of one store."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._text: str | None = None

    def text(self) -> str:
        """What the file holds; empty when it could not be written."""
        if self._text is None:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        text = secrets.token_hex(16)
        half = self.path.with_name(f"{self.path.name}.new")
        try:
            half.unlink(missing_ok=True)
            descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
            half.replace(self.path)
        except OSError as error:
            _log.info("bulk readers on this machine read over the network: %s cannot be written: %s", self.path, error)
            return ""
        return text
