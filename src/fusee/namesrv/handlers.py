"""What the name server answers, one plain function per request code (Java: DefaultRequestProcessor and
others).

Every handler takes the request and the connection it came over, and returns the answer at once. Nothing
here opens or owns a connection: links are closed, and brokers told of changes, through what the
composition root passes in.

The route query decides the speed of a name server. Its prepared answers are kept per topic, dialect and
zone until routes, key/value configuration or settings change.
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, Final, Protocol

from fusee.config import format_properties, parse_properties
from fusee.errors import ConfigError
from fusee.namesrv.config import UpdateRefusedError
from fusee.namesrv.kv_table import ORDER_TOPIC_CONFIG
from fusee.namesrv.recall import Recall
from fusee.namesrv.route_table import Outcome, Registration, UnknownBrokerError, filter_by_zone
from fusee.namesrv.saved_file import SavedFile
from fusee.wire.bodies.kv import encode_kv_table
from fusee.wire.bodies.route import (
    STANDARD_JSON_VERSION,
    decode_route,
    encode_cluster_info,
    encode_member_group,
    encode_route,
)
from fusee.wire.bodies.topic import (
    TopicList,
    decode_data_version,
    decode_register_body,
    encode_data_version,
    encode_topic_list,
)
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.namesrv import (
    AddWritePermission,
    AddWritePermissionResponse,
    BrokerHeartbeat,
    DeleteKeyValue,
    DeleteTopicFromNameServer,
    GetBrokerMemberGroup,
    GetKeyValue,
    GetKeyValueResponse,
    GetKeyValuesByNamespace,
    GetRouteInfo,
    GetTopicsByCluster,
    PutKeyValue,
    QueryDataVersion,
    QueryDataVersionResponse,
    RegisterBroker,
    RegisterBrokerResponse,
    RegisterTopic,
    UnregisterBroker,
    WipeWritePermission,
    WipeWritePermissionResponse,
)
from fusee.wire.headers.replication import NotifyMinBrokerIdChange
from fusee.wire.hot_encode import PreparedAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from fusee.clock import Clock
    from fusee.namesrv.config import NameServerConfig
    from fusee.namesrv.kv_table import KvTable
    from fusee.namesrv.route_table import Departures, MinBrokerChange, RouteTable
    from fusee.namesrv.saved_file import FileSystem
    from fusee.wire.bodies.route import TopicRouteData

_log = logging.getLogger(__name__)

_RECALL_MAX: Final = 4_096
ZONE_NAME: Final = "__ZONE_NAME"
ZONE_MODE: Final = "__ZONE_MODE"
_ZONE_MODE_BYTES: Final = ZONE_MODE.encode()


class Link(Protocol):
    """The connection of a request, as far as the name server needs it. Compared and hashed by identity."""

    @property
    def remote_address(self) -> str: ...

    def close(self) -> None: ...

    def __hash__(self) -> int: ...


class Handlers:
    """The request codes of a name server over its tables.

    `send_oneway(address, command)` reaches a broker at the address it listens on, without waiting; it is
    used only when notify_min_broker_id_changed is set. `config` is replaced when settings change over the
    wire; `on_config` is called with the new one.
    """

    def __init__(
        self,
        *,
        route_table: RouteTable,
        kv_table: KvTable,
        config: NameServerConfig,
        clock: Clock,
        send_oneway: Callable[[str, Command], None],
        on_config: Callable[[NameServerConfig], None] | None = None,
        file_system: FileSystem | None = None,
    ) -> None:
        self._routes = route_table
        self._kv = kv_table
        self.config = config
        self._clock = clock
        self._send_oneway = send_oneway
        self._on_config = on_config
        self._config_file = (
            SavedFile(config.config_store_path, file_system=file_system) if config.config_store_path else None
        )
        self._started = clock.monotonic()
        # Prepared route answers by topic, dialect and zone, and the state of the tables that they were made from.
        self._answers: dict[tuple[str, bool, str], PreparedAnswer] = {}
        self._routes_version = self._kv_version = -1
        self._answers_config = config
        self.recall = Recall(lambda: (self._routes.version, self._kv.version, self.config), _RECALL_MAX)

    def routes(self) -> dict[RequestCode, Callable[[Command, Link], Command | bytes | None]]:
        """The name server on one page."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv_config,
            RequestCode.GET_KV_CONFIG: self.get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_namespace,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_member_group,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_subscription_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_subscription_topics_without_unit,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }

    # Events beside requests

    def link_lost(self, link: Hashable) -> None:
        """The connection ended, failed or fell idle: its brokers are gone. Harmless for other connections."""
        departures = self._routes.channel_lost(link)
        for cluster, address in departures.removed:
            _log.warning("broker %s of cluster %s is removed: its connection ended", address, cluster)
        self._tell(departures.min_broker_changes)

    def expire_brokers(self) -> None:
        """Remove brokers that went silent. To be called every scan_not_active_broker_interval."""
        departures: Departures = self._routes.expire(self._clock.time_ms())
        for cluster, address in departures.removed:
            _log.warning("broker %s of cluster %s is removed: it is silent for too long", address, cluster)
        for link in departures.to_close:
            link.close()  # type: ignore[attr-defined]  # what registered is what `register_broker` was given
        self._tell(departures.min_broker_changes)

    # Routes

    def get_route(self, request: Command, link: Link) -> Command | bytes:
        """105: the route of a topic."""
        header = request.read(GetRouteInfo)
        config = self.config
        if config.need_wait_for_service and self._clock.monotonic() - self._started < config.wait_seconds_for_service:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                remark="name server not ready: needWaitForService is set, and "
                f"{config.wait_seconds_for_service} s have not passed since its start",
            )
        standard_json = request.version >= STANDARD_JSON_VERSION or header.accept_standard_json_only is True
        key = (header.topic, standard_json, _zone_of(request))
        if (
            self._routes.version != self._routes_version
            or self._kv.version != self._kv_version
            or config is not self._answers_config
        ):
            self._answers.clear()
            self._routes_version, self._kv_version = self._routes.version, self._kv.version
            self._answers_config = config
        answer = self._answers.get(key)
        if answer is None:
            route = self._route(*key)
            if route is None:
                return request.reply(
                    ResponseCode.TOPIC_NOT_EXIST,
                    remark=f"No topic route info in name server for the topic: {header.topic}\n"
                    "No broker has announced it to this name server: check its name, create it, or look at "
                    "the cluster list whether its brokers are registered here.",
                )
            answer = PreparedAnswer(request.reply(body=encode_route(route, standard_json=standard_json)))
            if len(self._answers) >= config.route_cache_entries_max:
                self._answers.clear()
            self._answers[key] = answer
        if not config.need_wait_for_service:
            self.recall.learn(request, answer)
        return answer.frame(request.opaque)

    def _route(self, topic: str, _standard_json: bool, zone: str) -> TopicRouteData | None:
        route = self._routes.route(topic, acting_master=self.config.support_acting_master)
        if route is None:
            return None
        if self.config.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_CONFIG, topic)
        return filter_by_zone(route, zone) if zone else route

    def get_cluster_info(self, request: Command, link: Link) -> Command:
        """106: all broker groups and clusters."""
        return request.reply(body=encode_cluster_info(self._routes.cluster_info()))

    def get_member_group(self, request: Command, link: Link) -> Command:
        """901: who is alive in a broker group."""
        header = request.read(GetBrokerMemberGroup)
        group = self._routes.member_group(header.cluster_name, header.broker_name)
        return request.reply(body=encode_member_group(group))

    # Brokers

    def register_broker(self, request: Command, link: Link) -> Command:
        """103: a broker announces itself and its topics."""
        header = request.read(RegisterBroker)
        if header.body_crc32 and zlib.crc32(request.body) & 0x7FFFFFFF != header.body_crc32:
            return request.reply(ResponseCode.SYSTEM_ERROR, RegisterBrokerResponse(), remark="crc32 not match")
        body = decode_register_body(
            request.body,
            compressed=header.compressed,
            version=request.version,
            size_max=self.config.register_body_size_max,
        )
        registration = Registration(
            cluster=header.cluster_name,
            address=header.broker_address,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            ha_address=header.ha_server_address,
            channel=link,
            topics=body.topic_config_serialize_wrapper,
            filter_servers=body.filter_server_list,
            zone=request.all_fields().get(ZONE_NAME),
            timeout_ms=header.heartbeat_timeout_ms,
            acting_master=header.enable_acting_master,
        )
        result = self._routes.register(
            registration,
            self._clock.time_ms(),
            drop_missing_topics=self.config.delete_topic_with_broker_registration,
        )
        if result.outcome is Outcome.REFUSED:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                RegisterBrokerResponse(),
                remark=f"register broker failed: broker {header.broker_name} with id {header.broker_id} is "
                "not known here and announces a single topic; it must register with all its topics first",
            )
        if result.outcome is Outcome.IGNORED:
            _log.warning(
                "registration of %s as %s with id %d is ignored: another address has it with newer data",
                header.broker_address,
                header.broker_name,
                header.broker_id,
            )
        if result.min_broker_change is not None:
            self._tell([result.min_broker_change])
        order_topics = None
        if self.config.return_order_topic_config_to_broker:
            order_topics = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return request.reply(
            ResponseCode.SUCCESS,
            RegisterBrokerResponse(ha_server_address=result.master_ha_address, master_address=result.master_address),
            body=b"" if order_topics is None else encode_kv_table(order_topics),
        )

    def unregister_broker(self, request: Command, link: Link) -> Command:
        """104: a broker takes its leave. Done when the answer is sent."""
        header = request.read(UnregisterBroker)
        departures = self._routes.unregister([(header.cluster_name, header.broker_address, header.broker_name)])
        self._tell(departures.min_broker_changes)
        return request.reply()

    def query_data_version(self, request: Command, link: Link) -> Command:
        """322: whether a broker needs to register again; a sign of life too."""
        header = request.read(QueryDataVersion)
        theirs = decode_data_version(request.body) if request.body else None
        ours = self._routes.data_version(header.cluster_name, header.broker_address)
        self._routes.touch(header.cluster_name, header.broker_address, self._clock.time_ms())
        return request.reply(
            ResponseCode.SUCCESS,
            QueryDataVersionResponse(changed=ours is None or ours != theirs),
            body=b"" if ours is None else encode_data_version(ours),
        )

    def broker_heartbeat(self, request: Command, link: Link) -> Command:
        """904: a sign of life."""
        header = request.read(BrokerHeartbeat)
        self._routes.touch(header.cluster_name, header.broker_address, self._clock.time_ms())
        return request.reply()

    def wipe_write_permission(self, request: Command, link: Link) -> Command:
        """205: make the topics of a broker group read-only."""
        header = request.read(WipeWritePermission)
        count = self._routes.wipe_write_permission(header.broker_name)
        _log.info("%s wiped the write permission of %d topics of %s", link.remote_address, count, header.broker_name)
        return request.reply(ResponseCode.SUCCESS, WipeWritePermissionResponse(topics=count))

    def add_write_permission(self, request: Command, link: Link) -> Command:
        """327: make the topics of a broker group writable again."""
        header = request.read(AddWritePermission)
        count = self._routes.add_write_permission(header.broker_name)
        _log.info("%s added the write permission of %d topics of %s", link.remote_address, count, header.broker_name)
        return request.reply(ResponseCode.SUCCESS, AddWritePermissionResponse(topics=count))

    # Topics

    def get_all_topics(self, request: Command, link: Link) -> Command:
        """206: the names of all topics."""
        if not self.config.enable_all_topic_list:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark="disable: enableAllTopicList is false")
        return request.reply(body=encode_topic_list(self._routes.all_topics()))

    def get_topics_of_cluster(self, request: Command, link: Link) -> Command:
        """224: the names of the topics of a cluster."""
        return self._topic_list(
            request, lambda: self._routes.topics_of_cluster(request.read(GetTopicsByCluster).cluster)
        )

    def get_unit_topics(self, request: Command, link: Link) -> Command:
        """311: topics with the unit flag."""
        return self._topic_list(request, self._routes.unit_topics)

    def get_unit_subscription_topics(self, request: Command, link: Link) -> Command:
        """312: topics with the unit-subscription flag."""
        return self._topic_list(request, self._routes.unit_subscription_topics)

    def get_unit_subscription_topics_without_unit(self, request: Command, link: Link) -> Command:
        """313: topics with the unit-subscription flag but not the unit flag."""
        return self._topic_list(request, self._routes.unit_subscription_topics_without_unit)

    def _topic_list(self, request: Command, topics: Callable[[], TopicList]) -> Command:
        if not self.config.enable_topic_list:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark="disable: enableTopicList is false")
        return request.reply(body=encode_topic_list(topics()))

    def get_system_topics(self, request: Command, link: Link) -> Command:
        """304: names of clusters and broker groups."""
        return request.reply(body=encode_topic_list(self._routes.system_topics()))

    def delete_topic(self, request: Command, link: Link) -> Command:
        """216: forget a topic, everywhere or in one cluster."""
        header = request.read(DeleteTopicFromNameServer)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return request.reply()

    def register_topic(self, request: Command, link: Link) -> Command:
        """217: a single topic of brokers that are registered."""
        header = request.read(RegisterTopic)
        queues = decode_route(request.body).queue_datas if request.body else []
        try:
            self._routes.register_topic(header.topic, queues)
        except UnknownBrokerError as error:
            return request.reply(ResponseCode.BROKER_NOT_EXIST, remark=str(error))
        return request.reply()

    # Key/value configuration

    def put_kv_config(self, request: Command, link: Link) -> Command:
        """100: set a value. It is on disk when the answer is sent."""
        header = request.read(PutKeyValue)
        self._kv.put(header.namespace, header.key, header.value)
        return request.reply()

    def get_kv_config(self, request: Command, link: Link) -> bytes:
        """101: one value."""
        header = request.read(GetKeyValue)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            response = request.reply(
                ResponseCode.QUERY_NOT_FOUND,
                GetKeyValueResponse(),
                remark=f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        else:
            response = request.reply(ResponseCode.SUCCESS, GetKeyValueResponse(value=value))
        answer = PreparedAnswer(response)
        self.recall.learn(request, answer)
        return answer.frame(request.opaque)

    def delete_kv_config(self, request: Command, link: Link) -> Command:
        """102: remove a value."""
        header = request.read(DeleteKeyValue)
        self._kv.delete(header.namespace, header.key)
        return request.reply()

    def get_kv_namespace(self, request: Command, link: Link) -> Command:
        """219: all values of a namespace."""
        header = request.read(GetKeyValuesByNamespace)
        table = self._kv.namespace(header.namespace)
        if table is None:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark=f"No config item, Namespace: {header.namespace}")
        return request.reply(body=encode_kv_table(table))

    # Settings

    def get_config(self, request: Command, link: Link) -> Command:
        """319: all settings as properties text."""
        return request.reply(body=self.config.to_properties().encode())

    def update_config(self, request: Command, link: Link) -> Command:
        """318: change settings that are on the allow-list, and save them when there is a file for it."""
        try:
            properties = parse_properties(request.body.decode())
            config = self.config.with_updates(properties)
            if self._config_file is not None:
                self._save_config(self._config_file, config.spelled(properties))
        except UpdateRefusedError as error:
            return request.reply(ResponseCode.NO_PERMISSION, remark=str(error))
        except UnicodeDecodeError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"settings are not UTF-8: {error}")
        except (ConfigError, OSError) as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"settings are not changed: {error}")
        _log.info("%s changed settings: %s", link.remote_address, ", ".join(sorted(properties)))
        self.config = config
        if self._on_config is not None:
            self._on_config(config)
        return request.reply()

    def _save_config(self, file: SavedFile, changes: dict[str, str]) -> None:
        saved = file.load(_decode_properties) or {}
        if changes and saved | changes != saved:
            file.save(format_properties(saved | changes).encode())

    # What follows from changes

    def _tell(self, changes: list[MinBrokerChange]) -> None:
        if not self.config.notify_min_broker_id_changed:
            return
        for change in changes:
            header = NotifyMinBrokerIdChange(
                min_broker_id=change.min_broker_id,
                min_broker_addr=change.min_broker_address,
                offline_broker_addr=change.offline_address,
                ha_broker_addr=change.ha_address,
            )
            for address in change.recipients:
                command = Command.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, oneway=True)
                self._send_oneway(address, command)


def _decode_properties(content: bytes) -> dict[str, str]:
    try:
        return parse_properties(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"the file is not UTF-8: {error}") from error


def _zone_of(request: Command) -> str:
    """The zone a route is asked for, or nothing. Header fields are looked at only when they can name one."""
    if request.raw_header is not None and _ZONE_MODE_BYTES not in request.raw_header:
        return ""
    fields = request.all_fields()
    if fields.get(ZONE_MODE, "").lower() != "true":
        return ""
    return fields.get(ZONE_NAME, "").strip()
