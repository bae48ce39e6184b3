from __future__ import annotations

import pytest

from fusee.admin.cluster import broker_state
from fusee.admin.diagnosis import clock_skew_ms, replication_findings
from fusee.admin.views import BrokerAddress, Finding, ReplicationView, Severity, SlaveView
from tests.admin.scene import Scene, play, queue

PLACE = BrokerAddress(cluster="c", broker_name="broker-a", address="10.0.0.1:10911")


def wrong(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.check for finding in findings if finding.is_wrong]


def test_a_cluster_that_is_well_has_nothing_wrong() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        findings = await on.do(on.admin.diagnose())
        assert wrong(findings) == []
        assert {"name server", "address", "disk", "clock", "route"} <= {finding.check for finding in findings}
        servers = await on.do(on.admin.diagnose(topics=False, groups=False))
        assert "route" not in {finding.check for finding in servers}

    play(scene)


def test_a_broker_that_cannot_be_reached_is_an_error_with_its_fix() -> None:
    async def scene(on: Scene) -> None:
        await on.lose("broker-a")
        findings = await on.do(on.admin.diagnose(), 300)
        (found,) = [each for each in findings if each.check == "address" and each.is_wrong]
        assert found.severity is Severity.ERROR
        assert "cannot be reached from here" in found.what
        assert "brokerIP1" in found.fix

    play(scene)


def test_a_group_without_members_whose_messages_wait_is_a_warning() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.do(on.admin.create_group("billing"))
        await on.send("orders", b"one")
        await on.send("orders", b"two")
        await on.commit("billing", queue(), 1)
        await on.world.advance(1)
        findings = await on.do(on.admin.diagnose())
        (found,) = [each for each in findings if each.is_wrong]
        assert (found.check, found.subject) == ("group", "billing")
        assert found.what == "1 messages wait and no member is online"

    play(scene)


def test_a_topic_that_takes_no_writes_is_an_error() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", perm="r"))
        findings = await on.do(on.admin.diagnose(groups=False))
        assert [(each.check, each.subject) for each in findings if each.is_wrong] == [("route", "orders")]

    play(scene)


@pytest.mark.parametrize(
    ("table", "skew_ms"),
    [
        ({"bootTimestamp": "1000000", "runtime": "[ 0 days, 0 hours, 1 minutes, 40 seconds ]"}, 500),
        ({"bootTimestamp": "1000000", "runtime": "[ 1 days, 0 hours, 1 minutes, 40 seconds ]"}, 86_400_500),
        ({"bootTimestamp": "1000000"}, None),
        ({"runtime": "[ 0 days, 0 hours, 1 minutes, 40 seconds ]"}, None),
    ],
)
def test_clock_skew_is_read_from_start_and_run_time(table: dict[str, str], skew_ms: int | None) -> None:
    assert clock_skew_ms(broker_state(PLACE, table), 1_100_000) == skew_ms


def test_slaves_that_lag_or_do_not_replicate_are_found() -> None:
    slave = BrokerAddress(cluster="c", broker_name="broker-a", broker_id=1, address="10.0.0.2:10911")

    def view(*behind: int) -> ReplicationView:
        return ReplicationView(
            broker=PLACE,
            is_master=True,
            log_max_offset=10**9,
            in_sync_slaves=len(behind),
            slaves=tuple(
                SlaveView(
                    address="10.0.0.2:1", acked_log_offset=0, behind_bytes=each, is_in_sync=True, bytes_per_second=0
                )
                for each in behind
            ),
        )

    assert replication_findings(PLACE, [], view()) == []
    assert [each.severity for each in replication_findings(PLACE, [slave], view(5))] == [Severity.OK]
    assert [each.severity for each in replication_findings(PLACE, [slave], view(10**9))] == [Severity.WARNING]
    assert [each.severity for each in replication_findings(PLACE, [slave], view())] == [Severity.ERROR]
