"""Controllers, which elect masters: who leads, which replicas are in step, and decisions by hand.

A controller is named by its address. Only the leader answers most requests; the others refuse with WrongNodeError, and
`controller_metadata` at any of them tells who leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.admin.fan_out import ask_all
from fusee.admin.reach import Reach
from fusee.admin.settings import settings_body, settings_in
from fusee.admin.views import BrokerAddress, ControllerView, ReplicaGroupView, ReplicaView
from fusee.wire.bodies.replication import BrokerReplicasInfo
from fusee.wire.codes import RequestCode
from fusee.wire.headers.controller import (
    CleanBrokerData,
    ElectMaster,
    ElectMasterResponse,
    GetControllerMetadataResponse,
)
from fusee.wire.lenient_json import dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fusee.wire.bodies.replication import ReplicaIdentity


class ControllerCalls(Reach):
    """Controllers of broker groups."""

    async def controller_metadata(self, controller: str) -> ControllerView:
        """Who leads the controllers (mqadmin getControllerMetaData); any of them can be asked."""
        answer = await self._ask(controller, RequestCode.CONTROLLER_GET_METADATA_INFO)
        header = answer.read(GetControllerMetadataResponse)
        return ControllerView(
            group=header.group or "",
            leader_id=header.controller_leader_id or "",
            leader_address=header.controller_leader_address or "",
            is_leader=header.is_leader,
            peers=tuple(filter(None, (header.peers or "").split(";"))),
        )

    async def replica_groups(self, controller: str, broker_names: Sequence[str]) -> tuple[ReplicaGroupView, ...]:
        """Masters and replicas of broker groups as the controller knows them (mqadmin getSyncStateSet), sorted."""
        found = await self._ask_json(
            controller,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
            BrokerReplicasInfo,
            body=dumps_fastjson(list(broker_names)),
        )
        return tuple(
            ReplicaGroupView(
                broker_name=name,
                master_id=info.master_broker_id,
                master_address=info.master_address or "",
                master_epoch=info.master_epoch,
                in_sync=tuple(_replica(each, is_in_sync=True) for each in info.in_sync_replicas),
                not_in_sync=tuple(_replica(each, is_in_sync=False) for each in info.not_in_sync_replicas),
            )
            for name, info in sorted(found.replicas_info_table.items())
        )

    async def elect_master(self, controller: str, *, cluster: str, broker_name: str, broker_id: int) -> BrokerAddress:
        """Make this replica the master of its group (mqadmin electMaster); who is master now."""
        header = ElectMaster(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            designate_elect=True,
            invoke_timestamp_ms=self._session.clock.time_ms(),
        )
        answer = await self._ask(controller, RequestCode.CONTROLLER_ELECT_MASTER, header)
        elected = answer.read(ElectMasterResponse)
        return BrokerAddress(
            cluster=cluster,
            broker_name=broker_name,
            broker_id=elected.master_broker_id or 0,
            address=elected.master_address or "",
        )

    async def clean_controller_data(
        self,
        controller: str,
        *,
        broker_name: str,
        cluster: str | None = None,
        broker_ids: Sequence[int] = (),
        living_too: bool = False,
    ) -> None:
        """Let the controller forget brokers of a group, some or all (mqadmin cleanBrokerMetadata)."""
        header = CleanBrokerData(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_ids=";".join(map(str, broker_ids)) or None,
            living_too=living_too,
            invoke_timestamp_ms=self._session.clock.time_ms(),
        )
        await self._ask(controller, RequestCode.CLEAN_BROKER_DATA, header)

    async def controller_configs(self, controllers: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of controllers, by address (mqadmin getControllerConfig)."""
        places = [BrokerAddress(address=address) for address in controllers]
        answers = await ask_all(places, lambda place: self._ask(place.address, RequestCode.GET_CONTROLLER_CONFIG))
        answers.complete("read the settings")
        return {place.address: settings_in(answer) for place, answer in answers.answers}

    async def update_controller_config(
        self, controllers: Iterable[str], changes: Mapping[str, object]
    ) -> tuple[BrokerAddress, ...]:
        """Change settings of controllers (mqadmin updateControllerConfig)."""
        body = settings_body(changes)
        places = [BrokerAddress(address=address) for address in controllers]
        answers = await self._ask_brokers(places, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
        return answers.complete("change the settings")


def _replica(replica: ReplicaIdentity, *, is_in_sync: bool) -> ReplicaView:
    return ReplicaView(
        broker_id=replica.broker_id or 0,
        address=replica.broker_address or "",
        is_alive=bool(replica.alive),
        is_in_sync=is_in_sync,
    )
