"""Words of a server on standard output, bold and dim where a person looks: all that a server needs of a terminal."""

from __future__ import annotations

import os
import sys


def say(text: str) -> None:
    """A line, at once: whoever waits for it may read a pipe."""
    print(text if _is_styled() else _unstyled(text), flush=True)  # noqa: T201


def bold(text: str) -> str:
    """For `say`."""
    return f"\x1b[1m{text}\x1b[0m"


def dim(text: str) -> str:
    """For `say`."""
    return f"\x1b[2m{text}\x1b[0m"


def yellow(text: str) -> str:
    """For `say`: a warning."""
    return f"\x1b[33m{text}\x1b[0m"


def _is_styled() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _unstyled(text: str) -> str:
    for mark in ("\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m"):
        text = text.replace(mark, "")
    return text
