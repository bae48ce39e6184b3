"""Settings over the wire: of brokers, of name servers, and the name servers' key-value tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.admin.reach import ORDER_CONFIG_NAMESPACE, Reach
from fusee.config import format_properties, parse_properties
from fusee.errors import ConfigError, NotFoundError
from fusee.wire.bodies.kv import decode_kv_table
from fusee.wire.codes import RequestCode
from fusee.wire.headers.namesrv import (
    DeleteKeyValue,
    GetKeyValue,
    GetKeyValueResponse,
    GetKeyValuesByNamespace,
    PutKeyValue,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fusee.admin.views import BrokerAddress
    from fusee.wire.command import Command


def settings_in(answer: Command) -> dict[str, str]:
    """The settings in an answer, by Java's names, sorted."""
    return dict(sorted(parse_properties(answer.body.decode("utf-8", "replace")).items()))


def settings_body(changes: Mapping[str, object]) -> bytes:
    """Settings as they travel; truth values in Java's spelling. Raises ConfigError when there are none."""
    if not changes:
        raise ConfigError("no setting is given; name at least one, in RocketMQ's spelling, e.g. flushDiskType")
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in changes.items()}
    return format_properties(texts).encode()


class SettingCalls(Reach):
    """Settings of servers."""

    async def broker_config(self, broker: str) -> dict[str, str]:
        """All settings of one broker, by RocketMQ's names (mqadmin getBrokerConfig)."""
        place = await self._one_broker(broker)
        return settings_in(await self._ask(place.address, RequestCode.GET_BROKER_CONFIG))

    async def broker_configs(self, *, cluster: str | None = None) -> dict[str, dict[str, str]]:
        """The settings of every broker, slaves too, by address. Raises when one does not tell."""
        brokers = await self.brokers(cluster=cluster, slaves=True)
        answers = await self._ask_brokers(brokers, RequestCode.GET_BROKER_CONFIG)
        answers.complete("read the settings")
        return {broker.address: settings_in(answer) for broker, answer in answers.answers}

    async def update_broker_config(
        self, changes: Mapping[str, object], *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Change settings of one broker, or of every master (mqadmin updateBrokerConfig). Names are RocketMQ's.

        A broker ignores names that it does not know, and refuses those that must not be changed from afar.
        """
        body = settings_body(changes)
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await self._ask_brokers(brokers, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        return answers.complete("change the settings")

    async def name_server_configs(self) -> dict[str, dict[str, str]]:
        """The settings of every name server, by address (mqadmin getNamesrvConfig)."""
        answers = await self._ask_name_servers(RequestCode.GET_NAMESRV_CONFIG)
        answers.complete("read the settings")
        return {server.address: settings_in(answer) for server, answer in answers.answers}

    async def update_name_server_config(self, changes: Mapping[str, object]) -> tuple[BrokerAddress, ...]:
        """Change settings of every name server (mqadmin updateNamesrvConfig)."""
        answers = await self._ask_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, body=settings_body(changes))
        return answers.complete("change the settings")

    # Key-value tables

    async def kv(self, namespace: str, key: str) -> str | None:
        """The value of a key at a name server; None when there is none."""
        try:
            answer = await self._ask_name_server(RequestCode.GET_KV_CONFIG, GetKeyValue(namespace=namespace, key=key))
        except NotFoundError:
            return None
        return answer.read(GetKeyValueResponse).value

    async def kv_table(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace; empty when there is no such namespace."""
        try:
            answer = await self._ask_name_server(
                RequestCode.GET_KVLIST_BY_NAMESPACE, GetKeyValuesByNamespace(namespace=namespace)
            )
        except NotFoundError:
            return {}
        return dict(decode_kv_table(answer.body).table)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set a value at every name server (mqadmin updateKvConfig)."""
        header = PutKeyValue(namespace=namespace, key=key, value=value)
        (await self._ask_name_servers(RequestCode.PUT_KV_CONFIG, header)).complete("set the value")

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a value at every name server (mqadmin deleteKvConfig); nothing happens when there is none."""
        header = DeleteKeyValue(namespace=namespace, key=key)
        (await self._ask_name_servers(RequestCode.DELETE_KV_CONFIG, header)).complete("delete the value")

    # Which queues of an ordered topic are in use

    async def order_config(self, topic: str) -> str | None:
        """The queues in use of an ordered topic, `broker-a:4;broker-b:4`; None when that is not set."""
        return await self.kv(ORDER_CONFIG_NAMESPACE, topic)

    async def set_order_config(self, topic: str, config: str, *, replace: bool = True) -> str:
        """Set the queues in use of an ordered topic (mqadmin updateOrderConf); what is set now.

        With `replace` False, brokers that `config` does not name keep theirs. Raises ConfigError on a malformed text.
        """
        entries = _order_entries(config)
        if not replace:
            entries = _order_entries(await self.order_config(topic) or "", strict=False) | entries
        text = ";".join(f"{name}:{queues}" for name, queues in entries.items())
        await self.put_kv(ORDER_CONFIG_NAMESPACE, topic, text)
        return text

    async def delete_order_config(self, topic: str) -> None:
        """Let all queues of a topic be in use again."""
        await self.delete_kv(ORDER_CONFIG_NAMESPACE, topic)


def _order_entries(config: str, *, strict: bool = True) -> dict[str, str]:
    entries: dict[str, str] = {}
    for item in filter(None, config.split(";")):
        name, _, queues = item.partition(":")
        if name.strip() and queues.strip().isdigit():
            entries[name.strip()] = queues.strip()
        elif strict:
            raise ConfigError(f"{item!r} in {config!r} is not `broker:queues`; write e.g. broker-a:4;broker-b:4")
    if strict and not entries:
        raise ConfigError(f"{config!r} names no broker; write e.g. broker-a:4;broker-b:4, or delete the order config")
    return entries
