"""Programs run by themselves: what happens at their end, after a fork and by a signal cannot be seen from inside."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from typing import NamedTuple

_TIMEOUT = 60.0


class Ended(NamedTuple):
    """How a program ended."""

    code: int
    out: list[str]
    errors: str


def run_program(source: str, *arguments: str) -> Ended:
    """Run a program to its end."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(source), *arguments],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
    )
    return Ended(done.returncode, done.stdout.split("\n")[:-1], done.stderr)


def interrupt_program(source: str, *arguments: str, when: str) -> Ended:
    """Run a program, and press Ctrl-C when it has printed this line."""
    command = [sys.executable, "-u", "-c", textwrap.dedent(source), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        seen = []
        try:
            for line in program.stdout:
                seen.append(line.rstrip("\n"))
                if seen[-1] == when:
                    break
            program.send_signal(signal.SIGINT)
            out, errors = program.communicate(timeout=_TIMEOUT)
        finally:
            program.kill()
    return Ended(program.returncode, [*seen, *out.split("\n")[:-1]], errors)
