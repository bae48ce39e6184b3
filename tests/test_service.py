"""What every program does when it starts."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

from fusee.service import allow_many_files


def test_open_files_are_raised_to_what_is_allowed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        allow_many_files()
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised == min(hard, 1 << 20)
        allow_many_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (raised, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_large_blocks_are_used_again_without_new_pages() -> None:
    program = """
import platform
import resource
import subprocess
import sys
from fusee.service import keep_freed_memory
keep_freed_memory()
def touch():
    for _ in range(8):
        bytes(bytearray(3 << 20))
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    if platform.libc_ver()[0] == "glibc":
        assert int(done.stdout) < 100, "of 12,288 pages that 8 times 6 MiB have"
