"""What a broker has and does as a slave only: follow the log, copy the tables, watch the group, act for the master.

The parts know nothing of each other; here they are put together, and told when the master has come or gone: pulls that
are held hear of it, the tables are copied at once, and topics of which only messages have arrived get a configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.broker.acting import Acting
from fusee.broker.escape import Escape
from fusee.broker.group_watch import GroupWatch
from fusee.broker.slave_tables import SlaveTables
from fusee.replication import Replica, ReplicaSettings
from fusee.replication.metadata import MetadataCopy
from fusee.service import Periodic
from fusee.store.dispatch_batch import DispatchBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.broker.config import BrokerConfig
    from fusee.broker.delay import DelayDelivery
    from fusee.broker.group_watch import GroupQuestions
    from fusee.broker.groups import GroupTable
    from fusee.broker.holds import Holds
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.topics import TopicTable
    from fusee.clock import Clock, Timers
    from fusee.errors import StoreFailedError
    from fusee.store.results import Dispatched
    from fusee.transport.client import Client
    from fusee.transport.interfaces import Network
    from fusee.wire.headers.namesrv import RegisterBrokerResponse

_LOOK_INTERVAL: Final = 0.2


class Slave:
    """The parts of a slave. `config` may be replaced while it runs."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        writer: LogWriter,
        network: Network,
        client: Client,
        clock: Clock,
        timers: Timers,
        reports_flushed: bool,
        on_failure: Callable[[StoreFailedError], object],
    ) -> None:
        """`network` is for the log stream, plain always, as the master's end."""
        self._config = config
        self._writer = writer
        self._client = client
        self._clock = clock
        self._timers = timers
        self.replica = Replica(
            store=writer.store,
            append=writer.append,
            network=network,
            client=client,
            clock=clock,
            timers=timers,
            broker_id=config.broker_id,
            settings=_replica_settings(config),
            reports_flushed=reports_flushed,
            on_truncated=self._truncated,
            on_failure=on_failure,
        )
        self.replica.set_master(config.ha_master_address or None)
        self.escape = Escape(writer=writer, config=config, client=client, clock=clock)
        self._had_master = False
        self._has_strangers = False
        """Whether messages of topics have come whose configuration has not."""
        self._looks = Periodic(timers, _LOOK_INTERVAL, self._look)

    def complete(
        self,
        *,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        delay: DelayDelivery,
        holds: Holds,
        questions: GroupQuestions,
        adopt_topics: Callable[[], object],
    ) -> None:
        """Add what needs the rest of the broker: `delay` delivers through `escape`."""
        self._topics = topics
        self._offsets = offsets
        self._delay = delay
        self._holds = holds
        self._adopt_topics = adopt_topics
        self.acting = Acting(
            config=self._config,
            has_master=lambda: self.replica.is_connected,
            delay=delay,
            escape=self.escape,
            on_change=self._acting_changed,
        )
        self.metadata = MetadataCopy(
            tables=SlaveTables(topics=topics, groups=groups, offsets=offsets, delay=delay, store=self._writer.store),
            # Only of a master whose log is this slave's: another's tables would be none of its business.
            master=lambda: self.replica.master_address if self.replica.is_connected else None,
            client=self._client,
            clock=self._clock,
            timers=self._timers,
        )
        self._watch = GroupWatch(
            questions=questions,
            timers=self._timers,
            is_needed=lambda: self._config.enable_slave_acting_master or self._is_master_wanted(),
            is_master_wanted=self._is_master_wanted,
            on_members=self.acting.members_known,
            on_master=self._master_found,
        )

    @property
    def config(self) -> BrokerConfig:
        return self._config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self._config = self.escape.config = self.acting.config = config
        self.replica.settings = _replica_settings(config)

    def start(self) -> None:
        """Begin to follow. Raises StoreCorruptError."""
        self._delay.load()
        self._truncated()  # by a process that died before it could say so
        for part in (self.replica, self.metadata, self._watch, self._looks):
            part.start()

    def stop(self) -> None:
        self.acting.stop()
        for part in (self._looks, self._watch, self.metadata, self.replica):
            part.stop()

    # What happens

    def registered(self, answer: RegisterBrokerResponse) -> None:
        """A name server says where the master is."""
        self._set_master(answer.ha_server_address, answer.master_address)

    def arrived(self, batch: Sequence[Dispatched]) -> None:
        """Records of the master's log have become visible."""
        topics = batch.topics if isinstance(batch, DispatchBatch) else {record.topic for record in batch}
        if any(self._topics.get(topic) is None for topic in topics):
            self._has_strangers = True
            self.metadata.soon()

    def _truncated(self) -> None:
        """The log ends earlier than it did."""
        self._writer.make_visible()
        self._offsets.cut_own(self._writer.store.max_offset)

    def _is_master_wanted(self) -> bool:
        return not self.replica.is_connected or self.replica.master_address is None

    def _master_found(self, address: str, ha_address: str) -> None:
        self._set_master(ha_address, address)
        self.replica.try_now()
        self.metadata.soon()

    def _set_master(self, ha_address: str | None, address: str | None) -> None:
        """Follow the master that is here; an address of its log that was set stays."""
        self.replica.set_master(None if self._config.ha_master_address else ha_address, address)

    def _acting_changed(self) -> None:
        self._adopt_topics()
        self._holds.wake_all()

    def _look(self) -> None:
        """See whether the master has come or gone, and act on it."""
        has_master = self.replica.is_connected
        if self._has_strangers and not has_master:
            # The last of its topics came with messages only. It may have come and gone between two looks.
            self._has_strangers = False
            self._adopt_topics()
        if has_master == self._had_master:
            return
        self._had_master = has_master
        self.acting.decide()
        if has_master:
            self.metadata.soon()
            # Whoever waits here for what the master has may ask it now.
            self._holds.wake_all()


def _replica_settings(config: BrokerConfig) -> ReplicaSettings:
    return ReplicaSettings(
        heartbeat_interval=config.ha_send_heartbeat_interval / 1000,
        housekeeping_interval=config.ha_housekeeping_interval / 1000,
        from_last_segment=config.sync_from_last_file,
    )
