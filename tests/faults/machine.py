"""Clocks that jump and disks that are slow, for single processes: a small library that is preloaded into nodes.

It needs a C compiler and the GNU C library; where there is none, these faults are left out, and only the simulation
has them.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("machine.c")
_SECOND_NS: Final = 1_000_000_000
_PRELOAD: Final = "LD_PRELOAD"
_FOLDER: Final = "FAULTS_MACHINE"


class Machine:
    """The clock and the disk of each process that is started while this is entered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = {name: os.environ.get(name) for name in (_PRELOAD, _FOLDER)}
        self.is_there = False

    def __enter__(self) -> Machine:
        compiler = shutil.which("cc") or shutil.which("gcc")
        library = self._folder / "machine.so"
        self._folder.mkdir(parents=True, exist_ok=True)
        if compiler is not None:
            built = subprocess.run(
                [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"],
                capture_output=True,
                check=False,
            )
            self.is_there = built.returncode == 0
        if self.is_there:
            os.environ |= {_PRELOAD: str(library), _FOLDER: str(self._folder)}
        return self

    def __exit__(self, *exit_cause: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def set_clock(self, pid: int, seconds: float) -> None:
        """The wall clock of the process is so far from the true time."""
        self._write(pid, 0, seconds)

    def set_sync_time(self, pid: int, seconds: float) -> None:
        """Each sync of the process takes so much longer."""
        self._write(pid, 8, seconds)

    def _write(self, pid: int, position: int, seconds: float) -> None:
        with (self._folder / str(pid)).open("r+b") as file:
            file.seek(position)
            file.write(struct.pack("=q", round(seconds * _SECOND_NS)))
