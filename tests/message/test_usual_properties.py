"""What is usual is decided as by searching the text, whatever the text is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.message.properties import decode_properties
from fusee.message.usual_properties import usual_unique_id

UNUSUAL = (
    "DELAY",
    "TRAN_MSG",
    "TIMER_DELIVER_MS",
    "TIMER_DELAY_SEC",
    "MSG_REGION",
    "POP_CK",
    "INNER_NUM",
    "PGROUP_DELAY",
)
PIECES = st.sampled_from(
    ["UNIQ_KEY\x01", "7F01", "\x02", "\x01", "WAIT\x01", "true\x02", "false\x02", "TAGS\x01a\x02", "T", "TIMER_D", "é"]
    + [f"{name}\x01" for name in UNUSUAL]
)


def expected(properties: str) -> bytes | None:
    """The rule, by searches alone."""
    at = properties.find("UNIQ_KEY\x01")
    end = properties.find("\x02", max(at, 0))
    bad = ("DELAY\x01", "TRAN_MSG\x01", "TIMER_D", "MSG_REGION\x01", "POP_CK\x01", "INNER_NUM\x01")
    if at < 0 or not properties.endswith("\x02") or any(one in properties for one in bad):
        return None
    if (at and properties[at - 1] != "\x02") or end <= at + 9 or "UNIQ_KEY\x01" in properties[end:]:
        return None
    if "WAIT\x01" in properties and "WAIT\x01true\x02" not in properties:
        return None
    return properties[at + 9 : end].encode()


@given(st.lists(PIECES, max_size=10).map("".join))
def test_any_text_is_judged_by_the_rule(properties: str) -> None:
    assert usual_unique_id(properties) == expected(properties)


@given(st.text(max_size=30))
def test_text_of_any_kind_never_raises(text: str) -> None:
    properties = f"UNIQ_KEY\x01{text}\x02"
    if not any("\ud800" <= unit <= "\udfff" for unit in text):
        assert usual_unique_id(properties) == expected(properties)


def test_usual_message_gives_its_unique_id() -> None:
    properties = "KEYS\x01k\x02UNIQ_KEY\x017F000001\x02WAIT\x01true\x02TAGS\x01t\x02"
    found = usual_unique_id(properties)
    assert found == decode_properties(properties.encode())["UNIQ_KEY"].encode() == b"7F000001"


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_property_is_seen(name: str) -> None:
    assert usual_unique_id(f"UNIQ_KEY\x017F\x02{name}\x011\x02") is None


@pytest.mark.parametrize(
    "properties",
    ["", "\x02", "UNIQ_KEY\x01\x02", "UNIQ_KEY\x017F", "XUNIQ_KEY\x017F\x02", "UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02"],
)
def test_form_that_few_clients_send_is_left_to_the_long_way(properties: str) -> None:
    assert usual_unique_id(properties) is None
