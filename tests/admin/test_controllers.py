from __future__ import annotations

from fusee.wire.bodies.replication import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from fusee.wire.codes import RequestCode
from fusee.wire.headers.controller import (
    CleanBrokerData,
    ElectMaster,
    ElectMasterResponse,
    GetControllerMetadataResponse,
)
from fusee.wire.lenient_json import decode_json, dumps_fastjson
from tests.admin.scene import Scene, play, scripted


def test_controller_tells_who_leads_and_which_replicas_are_in_step() -> None:
    async def scene(on: Scene) -> None:
        server = await scripted(
            on, (RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
        )
        metadata = GetControllerMetadataResponse(
            group="g", controller_leader_id="n0", controller_leader_address="1:1", is_leader=True, peers="n0:1:1;n1:2:2"
        )
        server.answer(RequestCode.CONTROLLER_GET_METADATA_INFO, lambda ask: ask.reply(header=metadata))
        replicas = BrokerReplicasInfo(
            replicas_info_table={
                "broker-a": ReplicasInfo(
                    master_broker_id=1,
                    master_address="10.0.0.1:10911",
                    master_epoch=4,
                    in_sync_replicas=[ReplicaIdentity(broker_id=1, broker_address="10.0.0.1:10911", alive=True)],
                    not_in_sync_replicas=[ReplicaIdentity(broker_id=2, broker_address="10.0.0.2:10911", alive=False)],
                )
            }
        )
        server.answer(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, lambda ask: ask.reply(body=dumps_fastjson(replicas)))
        found = await on.do(on.admin.controller_metadata(server.address))
        assert (found.leader_id, found.is_leader, found.peers) == ("n0", True, ("n0:1:1", "n1:2:2"))
        (group,) = await on.do(on.admin.replica_groups(server.address, ["broker-a"]))
        assert decode_json(server.last().body, list[str]) == ["broker-a"]
        assert (group.master_id, group.master_epoch) == (1, 4)
        assert [(each.broker_id, each.is_alive, each.is_in_sync) for each in group.in_sync + group.not_in_sync] == [
            (1, True, True),
            (2, False, False),
        ]

    play(scene)


def test_controller_elects_forgets_and_is_set_by_hand() -> None:
    async def scene(on: Scene) -> None:
        codes = (
            RequestCode.CONTROLLER_ELECT_MASTER,
            RequestCode.CLEAN_BROKER_DATA,
            RequestCode.GET_CONTROLLER_CONFIG,
            RequestCode.UPDATE_CONTROLLER_CONFIG,
        )
        server = await scripted(on, codes)
        elected = ElectMasterResponse(master_broker_id=2, master_address="10.0.0.2:10911", master_epoch=5)
        server.answer(RequestCode.CONTROLLER_ELECT_MASTER, lambda ask: ask.reply(header=elected))
        for code in codes[1:]:
            server.answer(code, lambda ask: ask.reply(body=b"b=2\na=1\n"))
        at = server.address
        master = await on.do(on.admin.elect_master(at, cluster="C", broker_name="broker-a", broker_id=2))
        assert (master.broker_id, master.address) == (2, "10.0.0.2:10911")
        asked = server.last().read(ElectMaster)
        assert (asked.broker_id, asked.designate_elect, asked.broker_name) == (2, True, "broker-a")
        await on.do(on.admin.clean_controller_data(at, broker_name="broker-a", broker_ids=(1, 2), living_too=True))
        cleaned = server.last().read(CleanBrokerData)
        assert (cleaned.broker_ids, cleaned.living_too) == ("1;2", True)
        assert await on.do(on.admin.controller_configs([at])) == {at: {"a": "1", "b": "2"}}
        await on.do(on.admin.update_controller_config([at], {"scan": 5}))
        assert server.last().body == b"scan=5\n"

    play(scene)
