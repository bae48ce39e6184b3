"""Changes over the wire: what may be changed, to what, who is told, and what is saved."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.config import BrokerConfig, Settings, load_settings, spelled
from fusee.broker.settings_update import UPDATABLE, LiveSettings, SettingsFile, UpdateRefusedError
from fusee.clock import ManualClock
from fusee.config import parse_properties
from fusee.errors import ConfigError, StoreError
from fusee.store.config import StoreConfig
from fusee.store.filesystem import OsFileSystem


def live(**broker: object) -> LiveSettings:
    settings = Settings(
        broker=BrokerConfig(broker_name="a", **broker),  # type: ignore[arg-type]
        store=StoreConfig(),
        store_path="/data",
        origins={},
        ignored=(),
    )
    return LiveSettings(settings, clock=ManualClock())


def test_settings_of_broker_and_store_are_changed_at_once() -> None:
    settings = live()
    told: list[tuple[int, frozenset[str]]] = []
    settings.listeners.append(lambda now, names: told.append((now.broker.broker_permission, names)))
    changed = settings.update({"brokerPermission": " 4 ", "delete_when": "03;15", "longPollingEnable": "FALSE"})
    assert settings.broker.broker_permission == 4
    assert settings.store.delete_when == "03;15"
    assert not settings.broker.long_polling_enable
    assert changed == {"brokerPermission": "4", "deleteWhen": "03;15", "longPollingEnable": "false"}
    assert told == [(4, frozenset({"broker_permission", "delete_when", "long_polling_enable"}))]
    assert "deleteWhen=03;15" in settings.to_properties().splitlines()


def test_version_counts_updates_and_listeners_hear_only_of_changes() -> None:
    clock = ManualClock()
    settings = LiveSettings(load_settings(), clock=clock)
    settings.listeners.append(lambda *_: pytest.fail("nothing changed"))
    clock.advance(5)
    settings.update({"brokerPermission": "6"})
    assert settings.version.counter == 1
    assert settings.version.timestamp == clock.time_ms()


@pytest.mark.parametrize(
    "key",
    ["brokerConfigPath", "broker_config_path", "rocketmqHome", "configBlackList", "fileReservedTime", "broker_ip1"],
)
def test_black_list_is_refused_in_either_spelling(key: str) -> None:
    settings = live(config_black_list="fileReservedTime; brokerIP1")
    with pytest.raises(UpdateRefusedError, match=r"^Can not update config in black list\.$"):
        settings.update({"brokerPermission": "4", key: "1"})
    assert settings.broker.broker_permission == 6


@pytest.mark.parametrize("key", ["listenPort", "brokerName", "storePathRootDir", "maxMessageSize", "tlsServerKeyPath"])
def test_setting_that_is_not_on_the_list_needs_a_restart(key: str) -> None:
    with pytest.raises(UpdateRefusedError, match=f"{key} .* restart"):
        live().update({key: "1"})


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(UpdateRefusedError, match="flushDelayOfsetInterval is no setting"):
        live().update({"flushDelayOfsetInterval": "1"})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("brokerPermission", "8", "between 0 and 7"),
        ("flushConsumerOffsetInterval", "0", "between 100"),
        ("flushConsumerOffsetInterval", "-1", "between"),
        ("flushConsumerOffsetInterval", "1_000", "whole number"),
        ("flushConsumerOffsetInterval", "9" * 5_000, "whole number"),
        ("flushConsumerOffsetInterval", "", "whole number"),
        ("longPollingEnable", "yes", "true or false"),
        ("deleteWhen", "25", "deleteWhen=25"),
    ],
)
def test_value_that_cannot_be_changes_nothing(key: str, value: str, message: str) -> None:
    settings = live()
    before = settings.to_properties()
    with pytest.raises(ConfigError, match=message):
        settings.update({"rejectTransactionMessage": "true", key: value})
    assert settings.to_properties() == before
    assert settings.version.counter == 0


def test_every_setting_on_the_list_exists_and_numbers_have_a_range_with_the_default_in_it() -> None:
    values = load_settings().values()
    for name, limits in UPDATABLE.items():
        default = values[name]
        if type(default) is int:
            assert limits is not None
            assert limits.least <= default <= limits.most, name
        else:
            assert limits is None, name


def test_no_path_address_or_name_is_on_the_list() -> None:
    texts = {
        field.name
        for config in (BrokerConfig, StoreConfig)
        for field in dataclasses.fields(config)
        if field.type in ("str", str)
    }
    assert texts & set(UPDATABLE) == {"delete_when"}


@given(st.dictionaries(st.sampled_from(sorted(map(spelled, UPDATABLE))), st.text(max_size=8), max_size=4))
def test_any_text_is_taken_or_refused_as_a_whole(properties: dict[str, str]) -> None:
    settings = live()
    before = settings.to_properties()
    try:
        changed = settings.update(properties)
    except ConfigError:
        assert settings.to_properties() == before
    else:
        assert set(changed) == set(properties)


# The file


def test_changes_are_added_to_the_file_and_the_one_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "changes.properties"
    file = SettingsFile(str(path), OsFileSystem())
    file.save({"deleteWhen": "03"})
    file.save({"brokerPermission": "4"})
    assert parse_properties(path.read_text()) == {"deleteWhen": "03", "brokerPermission": "4"}
    assert parse_properties(path.with_name("changes.properties.bak").read_text()) == {"deleteWhen": "03"}
    settings = load_settings(flags={"broker_config_path": str(path)})
    assert settings.broker.broker_permission == 4
    assert settings.store.delete_when == "03"


def test_file_that_already_says_so_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "changes.properties"
    path.write_text("# kept\ndeleteWhen=03\n")
    SettingsFile(str(path), OsFileSystem()).save({"deleteWhen": "03"})
    assert path.read_text() == "# kept\ndeleteWhen=03\n"


def test_file_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("a file, no folder")
    with pytest.raises(StoreError):
        SettingsFile(str(tmp_path / "conf" / "x.properties"), OsFileSystem()).save({"deleteWhen": "03"})
