"""The module that Spark imports when it starts: it never raises, and says why there is no source."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys, warnings

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise {error}("not for " + name)

sys.meta_path.insert(0, Blocked())
warnings.simplefilter("always")
import pyspark_fusee
print(hasattr(pyspark_fusee, "DefaultSource"))
"""


def imported(module: str, error: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own in which the import of `module` raises `error`, and that of `pyspark_fusee` is tried."""
    program = BLOCKED.format(module=module, error=error)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize("error", ["ImportError", "RuntimeError"])
@pytest.mark.parametrize("module", ["pyarrow", "pyspark", "pyspark.sql.datasource", "fusee.pipeline"])
def test_import_when_something_it_needs_raises_warns_and_makes_no_source(module: str, error: str) -> None:
    done = imported(module, error)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False\n"
    assert f"the Spark source fusee is not registered: {error}('not for {module}')" in done.stderr


def test_import_when_nothing_is_missing_makes_the_source_and_says_nothing() -> None:
    done = imported("a_module_that_nobody_needs", "ImportError")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
