"""The pages of the site that are made from the code say something of everything that they are made of."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

import fusee
from fusee.broker.config import BrokerConfig, spelled
from fusee.cli.tree import BRANCHES
from fusee.config import camel
from fusee.namesrv import NameServerConfig
from fusee.store.config import StoreConfig
from scripts.diagrams import DRAWINGS, Box
from scripts.site.cli_reference import cli_reference
from scripts.site.python_reference import JOBS, python_reference
from scripts.site.settings_reference import broker_reference, meanings, name_server_reference, store_reference


@pytest.mark.parametrize(
    ("config", "page", "spelling"),
    [
        (BrokerConfig, broker_reference, spelled),
        (StoreConfig, store_reference, spelled),
        (NameServerConfig, name_server_reference, camel),
    ],
)
def test_every_setting_has_its_line_and_a_meaning(config: type[Any], page: Any, spelling: Any) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", page(), re.MULTILINE))
    assert rows.keys() == {spelling(field.name) for field in dataclasses.fields(config)}
    assert all(len(meaning) > 10 for meaning in meanings(config).values())


def test_every_command_has_its_section_with_options() -> None:
    page = cli_reference()
    for name in BRANCHES:
        assert f"\n## fusee {name}\n" in page
    assert "\n### fusee topic create\n" in page
    assert re.search(r"^\| `--namesrv-port` `N` \| `9876` \| .+ \|$", page, re.MULTILINE)


def test_every_public_name_of_python_is_there_with_its_defaults() -> None:
    page = python_reference()
    for name in ("connect", "embedded", "Connection", "Admin", "SendResult"):
        assert hasattr(fusee, name)
        assert f"\n### fusee.{name}\n" in page
    for job in JOBS:
        assert f"\n## fusee.pipeline.jobs.{job}\n" in page
    assert re.search(r"^    name_servers: .* = None,$|connect\(.*name_servers: .* = None", page, re.MULTILINE)
    assert "<object object at" not in page
    assert "0x7" not in page


@pytest.mark.parametrize("name", DRAWINGS)
def test_boxes_of_a_drawing_do_not_lie_on_each_other(name: str) -> None:
    boxes = [part for part in DRAWINGS[name].parts if isinstance(part, Box)]
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            is_beside = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert is_beside or abs(one.y - other.y) >= 54, (one.name, other.name)
