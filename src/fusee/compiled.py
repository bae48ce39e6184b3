"""Which modules run as machine code: the hot ones, where a C compiler was at hand, else all as they are written.

Theory of operation
-------------------
A module named in `HOT_MODULES` is ordinary Python. Beside it may stand a `.pxd` file that tells Cython the C types of
its classes and variables, or, for the few that must be written for C to gain anything, a `.pyx` file: a twin with the
same names, held to the same tests. `hatch_build.py` compiles the module into the folder `__compiled__` of this package,
under a name that holds a checksum of these files, and of the headers in C that they share:

    __compiled__/fusee.wire.framing-1c291ca3.cpython-311-x86_64-linux-gnu.so

`install` puts a finder in front of Python's own. When such a module is imported, the finder computes the checksum of
what is there now; if a file of that name exists it is loaded, else the source is. So machine code that does not
fit its source is never run, the two forms of different modules work together, and nothing has to be told to
whoever edits a module: it is interpreted until it is compiled again.

`FUSEE_PURE=1` in the environment runs everything as it is written.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

HOT_MODULES: Final = (
    "fusee.wire.arrival",
    "fusee.wire.framing",
    "fusee.wire.hot_encode",
    "fusee.wire.send_answers",
    "fusee.transport.link",
    "fusee.message.ids",
    "fusee.message.usual_properties",
    "fusee.client.accumulator",
    "fusee.client.called_back",
    "fusee.client.gathered_entries",
    "fusee.client.usual_send",
    "fusee.namesrv.recall",
    "fusee.store.batch_body",
    "fusee.store.index_entries",
    "fusee.store.plain_record",
    "fusee.store.record_keys",
    "fusee.store.record_parts",
    "fusee.store.record_places",
    "fusee.store.property_table",
    "fusee.pipeline.row_messages",
)
"""What decides throughput; each is small, and complete without a compiler."""

FOLDER: Final = "__compiled__"
SOURCE_SUFFIXES: Final = (".py", ".pxd", ".pyx")
SHARED_SOURCES: Final = (
    ("message", "crc32.h"),
    ("message", "prefetch.h"),
    ("message", "property_keys.h"),
    ("message", "property_keys.pxi"),
)
"""What more than one of them is compiled from."""
PURE_VARIABLE: Final = "FUSEE_PURE"

_PACKAGE: Final = os.path.dirname(__file__)  # noqa: PTH120  pathlib would cost every start some milliseconds


def is_pure() -> bool:
    """Whether the environment asks for the modules as they are written."""
    return os.environ.get(PURE_VARIABLE, "") not in ("", "0")


def compiled_path(package: str, module: str) -> str:
    """Where the compiled form of what this module is now would be; `package` is the folder of fusee."""
    stem = os.path.join(package, *module.split(".")[1:])  # noqa: PTH118
    checksum = _shared_checksum(package)
    for suffix in SOURCE_SUFFIXES:
        checksum = crc32(_read(stem + suffix), checksum)
    return os.path.join(package, FOLDER, f"{module}-{checksum:08x}{EXTENSION_SUFFIXES[0]}")  # noqa: PTH118


@cache
def _shared_checksum(package: str) -> int:
    checksum = 0
    for parts in SHARED_SOURCES:
        checksum = crc32(_read(os.path.join(package, *parts)), checksum)  # noqa: PTH118
    return checksum


class CompiledFinder:
    """Finds the machine code that fits the source of a hot module (importlib: a meta path finder)."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._modules = frozenset(HOT_MODULES)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where the compiled form is; None when the module is not hot or there is none that fits."""
        if name not in self._modules:
            return None
        compiled = compiled_path(self._package, name)
        if not os.path.exists(compiled):  # noqa: PTH110
            return None
        return ModuleSpec(name, ExtensionFileLoader(name, compiled), origin=compiled)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except FileNotFoundError:
        return b""


def install() -> None:
    """Let imports of this package find machine code, unless the environment forbids it or there is none."""
    if not is_pure() and os.path.isdir(os.path.join(_PACKAGE, FOLDER)):  # noqa: PTH112, PTH118
        sys.meta_path.insert(0, CompiledFinder(_PACKAGE))


def is_compiled(module: str) -> bool:
    """Whether this hot module runs as machine code, or would when it is imported."""
    loaded = sys.modules.get(module)
    if loaded is not None:
        return isinstance(loaded.__loader__, ExtensionFileLoader)
    finders = (finder for finder in sys.meta_path if isinstance(finder, CompiledFinder))
    return any(finder.find_spec(module) is not None for finder in finders)


def form() -> str:
    """Which form this process runs: `compiled`, `interpreted`, or how many of the hot modules are compiled."""
    compiled = sum(map(is_compiled, HOT_MODULES))
    if compiled == len(HOT_MODULES):
        return "compiled"
    return f"{compiled} of {len(HOT_MODULES)} hot modules compiled" if compiled else "interpreted"
