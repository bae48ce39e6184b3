from __future__ import annotations

import pytest

from fusee.admin import Admin, AdminError
from fusee.errors import ConfigError, NoPermissionError
from tests.admin.scene import Scene, play


def test_broker_config_is_read_and_changed() -> None:
    async def scene(on: Scene) -> None:
        before = await on.do(on.admin.broker_config("broker-a"))
        assert before["brokerName"] == "broker-a"
        done = await on.do(on.admin.update_broker_config({"autoCreateTopicEnable": False}))
        assert len(done) == 2
        configs = await on.do(on.admin.broker_configs())
        assert [configs[address]["autoCreateTopicEnable"] for address in sorted(configs)] == ["false", "false"]
        await on.do(on.admin.update_broker_config({"autoCreateTopicEnable": True}, broker="broker-b"))
        assert (await on.do(on.admin.broker_config("broker-a")))["autoCreateTopicEnable"] == "false"

    play(scene, brokers=2)


def test_update_broker_config_refused_and_empty() -> None:
    async def scene(on: Scene) -> None:
        with pytest.raises(NoPermissionError):
            await on.do(on.admin.update_broker_config({"rocketmqHome": "/"}))
        with pytest.raises(ConfigError, match="no setting is given"):
            await on.do(on.admin.update_broker_config({}))

    play(scene)


def test_broker_configs_when_one_does_not_tell_says_who() -> None:
    async def scene(on: Scene) -> None:
        await on.lose("broker-b")
        with pytest.raises(AdminError, match="could not read the settings at 1 of 2 servers; broker-b"):
            await on.do(on.admin.broker_configs())

    play(scene, brokers=2)


def test_name_server_config_is_read_and_changed_everywhere() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.update_name_server_config({"orderMessageEnable": True}))
        configs = await on.do(on.admin.name_server_configs())
        assert [configs[address]["orderMessageEnable"] for address in sorted(configs)] == ["true", "true"]
        assert sorted(configs) == ["10.0.1.1:9876", "10.0.1.2:9876"]

    play(scene, name_servers=2)


def test_key_values_are_written_to_every_name_server() -> None:
    async def scene(on: Scene) -> None:
        assert await on.do(on.admin.kv("space", "key")) is None
        assert await on.do(on.admin.kv_table("space")) == {}
        await on.do(on.admin.put_kv("space", "key", "value; with = signs"))
        await on.do(on.admin.put_kv("space", "other", "2"))
        for host in on.world.name_server_hosts:
            of_one = Admin(await on.world.session(name_servers=f"{host}:9876"))
            assert await on.do(of_one.kv_table("space")) == {"key": "value; with = signs", "other": "2"}
        assert await on.do(on.admin.kv("space", "key")) == "value; with = signs"
        await on.do(on.admin.delete_kv("space", "key"))
        assert await on.do(on.admin.kv_table("space")) == {"other": "2"}

    play(scene, name_servers=2)


def test_order_config_is_checked_and_merged() -> None:
    async def scene(on: Scene) -> None:
        assert await on.do(on.admin.set_order_config("steps", "broker-a:4; broker-b:2")) == "broker-a:4;broker-b:2"
        assert await on.do(on.admin.set_order_config("steps", "broker-b:8", replace=False)) == "broker-a:4;broker-b:8"
        for text in ("", "broker-a", "broker-a:x", ":4"):
            with pytest.raises(ConfigError):
                await on.do(on.admin.set_order_config("steps", text))
        await on.do(on.admin.delete_order_config("steps"))
        assert await on.do(on.admin.order_config("steps")) is None

    play(scene)
