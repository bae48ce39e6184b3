"""Every way in which `crc32.h` sums gives what zlib gives, those that lesser processors take too."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import zlib
from pathlib import Path

import pytest

from tests.test_compiled import builder

HEADER = Path(__file__).parents[2] / "src" / "fusee" / "message" / "crc32.h"
SIZES = (*range(150), 255, 256, 257, 271, 272, 319, 320, 335, 511, 512, 575, 1_023, 1_024, 1_040, 4_111)
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "crc32.h"

int main(int count, char **arguments) {
    static unsigned char bytes[8192], copy[8192];
    for (int at = 0; at < 8192; at++) bytes[at] = (unsigned char)(at * 167 + (at >> 8) * 59);
    for (int state = 1; state <= 3; state++) {
        fusee_crc_begin_at_most(state);
        for (int number = 1; number < count; number++) {
            int size = atoi(arguments[number]), first = size % 67;
            memset(copy, 0, sizeof copy);
            unsigned sum = fusee_crc32(bytes + first, size), copied = fusee_copy_crc32(copy, bytes + first, size);
            int is_whole = memcmp(copy, bytes + first, size) == 0 && copy[size] == 0;
            printf("%u %u %d\\n", sum, copied, is_whole);
        }
    }
}
"""


@pytest.mark.skipif(not builder().has_compiler(), reason="nothing is compiled here")
def test_sums_and_copies_are_right_in_every_form(tmp_path: Path) -> None:
    source, program = tmp_path / "sums.c", tmp_path / "sums"
    source.write_text(PROGRAM)
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    build = [compiler, "-O2", "-Wall", "-Werror", "-Wno-unused-function", f"-I{HEADER.parent}", str(source)]
    subprocess.run([*build, "-o", str(program)], check=True)
    ran = subprocess.run([str(program), *map(str, SIZES)], check=True, capture_output=True, text=True)
    content = bytes((at * 167 + (at >> 8) * 59) & 0xFF for at in range(8192))
    expected = [zlib.crc32(content[size % 67 : size % 67 + size]) for size in SIZES]
    assert ran.stdout.splitlines() == [f"{sum_} {sum_} 1" for _ in range(3) for sum_ in expected]
