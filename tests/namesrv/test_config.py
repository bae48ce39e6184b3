"""Settings: ranges, spelling, and the allow-list for changes over the wire."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.config import camel, load, parse_properties
from fusee.errors import ConfigError
from fusee.namesrv.config import UPDATABLE, NameServerConfig, UpdateRefusedError

if TYPE_CHECKING:
    from pathlib import Path


def test_java_file_is_taken_with_its_spelling(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=9877\nkvConfigPath=/data/kv.json\nserverWorkerThreads=8\norderMessageEnable=true\n")
    loaded = load(NameServerConfig, program="namesrv", file=file)
    assert loaded.value.listen_port == 9877
    assert loaded.value.kv_config_path == "/data/kv.json"
    assert loaded.value.order_message_enable
    assert loaded.ignored == ("serverWorkerThreads",)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("listen_port", 65_536),
        ("listen_port", -1),
        ("scan_not_active_broker_interval", 0),
        ("wait_seconds_for_service", -1),
        ("topics_max", 0),
        ("kv_keys_max", -5),
        ("route_cache_entries_max", 0),
        ("config_store_path", "namesrv.toml"),
    ],
)
def test_value_out_of_range_is_an_error_that_names_the_setting(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=camel(field)):
        NameServerConfig(**{field: value})  # type: ignore[arg-type]


def test_limits_are_those_of_the_configuration() -> None:
    config = NameServerConfig(topics_max=7, kv_keys_max=8)
    assert config.route_limits.topics_max == 7
    assert config.kv_limits.kv_keys_max == 8


def test_to_properties_is_sorted_and_reads_back() -> None:
    config = NameServerConfig(order_message_enable=True, kv_config_path="C:\\kv")
    text = config.to_properties()
    lines = text.splitlines()
    assert lines == sorted(lines)
    properties = parse_properties(text)
    assert properties["orderMessageEnable"] == "true"
    assert properties["scanNotActiveBrokerInterval"] == "5000"
    assert properties["kvConfigPath"] == "C:\\kv"
    assert len(properties) == len(dataclasses.fields(NameServerConfig))


def test_update_changes_what_is_on_the_list() -> None:
    before = NameServerConfig()
    after = before.with_updates(
        {"orderMessageEnable": " TRUE ", "waitSecondsForService": "7", "enable_topic_list": "false", "noSuchKey": "x"}
    )
    assert after == dataclasses.replace(
        before, order_message_enable=True, wait_seconds_for_service=7, enable_topic_list=False
    )
    assert not before.order_message_enable


@pytest.mark.parametrize(
    "key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "kv_config_path"]
)
def test_update_of_guarded_key_is_refused(key: str) -> None:
    with pytest.raises(UpdateRefusedError, match=r"^Can not update config in black list\."):
        NameServerConfig().with_updates({"orderMessageEnable": "true", key: "/etc/passwd"})


def test_update_of_key_in_operators_black_list_is_refused() -> None:
    config = NameServerConfig(config_black_list="orderMessageEnable; enableTopicList")
    for key in ("orderMessageEnable", "enableTopicList"):
        with pytest.raises(UpdateRefusedError, match="black list"):
            config.with_updates({key: "true"})


@given(st.sampled_from([field.name for field in dataclasses.fields(NameServerConfig)]), st.text())
def test_update_touches_no_other_setting(name: str, value: str) -> None:
    before = NameServerConfig()
    for key in (name, camel(name)):
        try:
            after = before.with_updates({key: value})
        except UpdateRefusedError:
            assert name not in UPDATABLE
        except ConfigError:
            assert name in UPDATABLE
        else:
            assert name in UPDATABLE
            assert dataclasses.replace(after, **{name: getattr(before, name)}) == before


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("orderMessageEnable", "yes", "must be true or false"),
        ("waitSecondsForService", "soon", "must be a whole number"),
        ("waitSecondsForService", "-1", "must not be negative"),
        ("scanNotActiveBrokerInterval", "0", "must be greater than 0"),
    ],
)
def test_update_with_wrong_value_is_an_error(key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        NameServerConfig().with_updates({key: value})
    assert not isinstance(caught.value, UpdateRefusedError)
    assert key in str(caught.value)


def test_allow_list_has_only_switches_and_numbers() -> None:
    types = {field.name: field.type for field in dataclasses.fields(NameServerConfig)}
    assert {types[name] for name in UPDATABLE} <= {"bool", "int"}
