"""An examination of a cluster from where a client stands: what does not work, what soon will not, and how to mend it.

Nothing is changed. Each check stands alone: a server that does not answer is a finding, and the rest is looked at all
the same. Clocks are compared by what a broker says of itself, when it started and for how long it has run, which is
good to a second.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from fusee.admin.cluster import ClusterCalls
from fusee.admin.fan_out import ask_all
from fusee.admin.lag import LagCalls
from fusee.admin.reach import all_brokers
from fusee.admin.settings import settings_in
from fusee.admin.views import BrokerAddress, Finding, Severity
from fusee.errors import FuseeError
from fusee.wire.bodies.route import decode_cluster_info
from fusee.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fusee.admin.views import BrokerState, ReplicationView

CLOCK_SKEW_MAX_MS: Final = 2_500
DISK_WARNING: Final = 0.75
DISK_ERROR: Final = 0.90
SLAVE_BEHIND_MAX: Final = 16 * 1024 * 1024
DISPATCH_BEHIND_MAX: Final = 64 * 1024 * 1024

_CHECKED_TOPICS_MAX: Final = 1_000
_CHECKED_GROUPS_MAX: Final = 200
_RUNTIME: Final = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")


class DiagnosisCalls(LagCalls, ClusterCalls):
    """What is wrong with a cluster."""

    async def diagnose(self, *, topics: bool = True, groups: bool = True) -> tuple[Finding, ...]:
        """Everything that was looked at, in the order of the way from a client to a message.

        Without `topics` and `groups` only servers are looked at.
        """
        findings, brokers = await self._name_server_findings()
        if not brokers:
            findings.append(
                _error(
                    "brokers",
                    "cluster",
                    "no broker is registered",
                    "start one: fusee broker -n NAMESRV, and see that its namesrvAddr names these name servers",
                )
            )
            return tuple(findings)
        findings += _group_findings(brokers)
        reached, more = await self._broker_findings(brokers)
        findings += more
        for place in reached:
            if place.is_master:
                findings += await self._replication_findings(place, brokers)
        if topics and reached:
            findings += await self._topic_findings(brokers)
        if groups and reached:
            findings += await self._consumer_findings()
        return tuple(findings)

    # Servers

    async def _name_server_findings(self) -> tuple[list[Finding], list[BrokerAddress]]:
        servers = [BrokerAddress(address=address) for address in self._session.name_servers.addresses]
        asked_at = self._session.clock.monotonic()
        took_ms: dict[str, float] = {}

        async def ask(server: BrokerAddress) -> list[BrokerAddress]:
            answer = await self._ask(server.address, RequestCode.GET_BROKER_CLUSTER_INFO)
            took_ms[server.address] = (self._session.clock.monotonic() - asked_at) * 1000
            return all_brokers(decode_cluster_info(answer.body))

        answers = await ask_all(servers, ask)
        findings = [
            _error(
                "name server",
                failure.address,
                f"does not answer: {failure.cause}",
                "start it, or take it out of --namesrv and NAMESRV_ADDR; check address, port and firewall",
            )
            for failure in answers.failures
        ]
        known: dict[BrokerAddress, None] = {place: None for places in answers.values for place in places}
        for server, places in answers.answers:
            missing = sorted({str(place) for place in known} - {str(place) for place in places})
            if missing:
                findings.append(
                    _error(
                        "name server",
                        server.address,
                        f"does not know {', '.join(missing)}, which others know: clients that ask it miss topics",
                        "give every broker all name servers in namesrvAddr, joined by `;`",
                    )
                )
            else:
                findings.append(
                    _ok(
                        "name server",
                        server.address,
                        f"answers in {took_ms[server.address]:.0f} ms, {len(places)} brokers",
                    )
                )
        if len(servers) == 1:
            findings.append(
                _note(
                    "name server",
                    servers[0].address,
                    "is the only one: when it is away, clients that start find nothing",
                    "run a second one, and name both to brokers and clients",
                )
            )
        return findings, sorted(known, key=lambda place: (place.cluster, place.broker_name, place.broker_id))

    async def _broker_findings(self, brokers: list[BrokerAddress]) -> tuple[list[BrokerAddress], list[Finding]]:
        remote = [address for address in self._session.name_servers.addresses if not _is_loopback(address)]
        findings = [
            _error(
                "address",
                str(place),
                "tells clients a loopback address, which is this machine for each of them",
                "set brokerIP1 to an address that clients reach, and restart it",
            )
            for place in brokers
            if remote and _is_loopback(place.address)
        ]
        answers = await ask_all(brokers, self._state)
        for failure in answers.failures:
            who = f"{failure.broker_name} ({failure.address})"
            findings.append(
                _error(
                    "address",
                    who,
                    f"is registered but cannot be reached from here: {failure.cause}",
                    "start it, or open its port to this machine; if the address is wrong, set brokerIP1",
                )
            )
        for place, state in answers.answers:
            findings.append(_ok("address", str(place), f"reached, {state.version or 'version not told'}"))
            findings += self._state_findings(place, state)
            findings += await self._setting_findings(place)
        findings += _version_findings(answers.values)
        return list(answers.done), findings

    def _state_findings(self, place: BrokerAddress, state: BrokerState) -> list[Finding]:
        name = str(place)
        findings: list[Finding] = []
        used = f"{state.disk_used_ratio:.0%} of the disk of the log is used"
        if state.disk_used_ratio >= DISK_ERROR:
            findings.append(
                _error(
                    "disk",
                    name,
                    f"{used}: writes are refused from about 90 % on",
                    "free space, or lower fileReservedTime",
                )
            )
        elif state.disk_used_ratio >= DISK_WARNING:
            findings.append(
                _warning(
                    "disk",
                    name,
                    f"{used}: from about 75 % on messages are deleted before their time",
                    "free space, or lower fileReservedTime",
                )
            )
        else:
            findings.append(_ok("disk", name, used))
        skew_ms = clock_skew_ms(state, self._session.clock.time_ms())
        if skew_ms is None:
            findings.append(_note("clock", name, "does not tell its time", ""))
        elif abs(skew_ms) > CLOCK_SKEW_MAX_MS:
            ahead = "ahead of" if skew_ms > 0 else "behind"
            findings.append(
                _warning(
                    "clock",
                    name,
                    f"is {abs(skew_ms) / 1000:.0f} s {ahead} this machine: delays and offsets by time are off by that",
                    "let both machines set their clocks by NTP",
                )
            )
        else:
            findings.append(_ok("clock", name, "agrees with this machine's"))
        if state.dispatch_behind_bytes > DISPATCH_BEHIND_MAX:
            findings.append(
                _warning(
                    "dispatch",
                    name,
                    f"{state.dispatch_behind_bytes:,} bytes of the log are not in queues yet: messages arrive late",
                    "look at the load and the disk of the machine",
                )
            )
        return findings

    async def _setting_findings(self, place: BrokerAddress) -> list[Finding]:
        try:
            settings = settings_in(await self._ask(place.address, RequestCode.GET_BROKER_CONFIG))
        except FuseeError as error:
            return [_note("settings", str(place), f"cannot be read: {error}", "")]
        findings: list[Finding] = []
        if place.is_master and settings.get("autoCreateTopicEnable") == "true":
            findings.append(
                _note(
                    "topic creation",
                    str(place),
                    "topics are made by the first message sent to them, so a typing error makes a topic",
                    f"fusee config set autoCreateTopicEnable=false --broker {place.broker_name}",
                )
            )
        return findings

    async def _replication_findings(self, place: BrokerAddress, brokers: list[BrokerAddress]) -> list[Finding]:
        slaves = [each for each in brokers if each.broker_name == place.broker_name and not each.is_master]
        try:
            found = await self.replication(place.address)
        except FuseeError as error:
            return [_warning("replication", str(place), f"is not told: {error}", "")] if slaves else []
        return replication_findings(place, slaves, found)

    # Topics and groups

    async def _topic_findings(self, brokers: list[BrokerAddress]) -> list[Finding]:
        masters = {place.broker_name for place in brokers if place.is_master}
        try:
            names = (await self.list_topics())[:_CHECKED_TOPICS_MAX]
        except FuseeError as error:
            return [_error("topics", "cluster", f"cannot be listed: {error}", "")]
        places = [BrokerAddress(broker_name=name, address="") for name in names]
        answers = await ask_all(places, lambda place: self.topic_route(place.broker_name), at_once=16)
        findings = [
            _error("route", failure.broker_name, f"is not told: {failure.cause}", "") for failure in answers.failures
        ]
        for route in answers.values:
            writable = {group.broker_name for group in route.groups if group.perm & 2 and group.write_queues}
            if not writable & masters:
                findings.append(
                    _error(
                        "route",
                        route.topic,
                        "nothing can be sent to it: no master that has it takes writes",
                        f"start its master, or allow writing: fusee topic update '{route.topic}' --perm rw",
                    )
                )
        if not findings:
            findings.append(_ok("route", "topics", f"{_counted(len(names), 'topic')}, each with a queue to write to"))
        return findings

    async def _consumer_findings(self) -> list[Finding]:
        try:
            names = (await self.list_groups())[:_CHECKED_GROUPS_MAX]
        except FuseeError as error:
            return [_error("groups", "cluster", f"cannot be listed: {error}", "")]
        places = [BrokerAddress(broker_name=name, address="") for name in names]
        answers = await ask_all(places, lambda place: self.group_summary(place.broker_name), at_once=8)
        findings = [
            _warning(
                "group",
                summary.group,
                f"{summary.lag:,} messages wait and no member is online",
                f"start its consumers, or look: fusee group lag {summary.group}",
            )
            for summary in answers.values
            if summary.lag > 0 and not summary.members
        ]
        findings += [
            _note("group", failure.broker_name, f"is not told: {failure.cause}", "") for failure in answers.failures
        ]
        return findings or [_ok("group", "groups", f"{_counted(len(names), 'group')}, none waits for a member")]


def clock_skew_ms(state: BrokerState, now_ms: int) -> int | None:
    """How far a broker's clock is ahead of this one, to about a second; None when the broker does not tell."""
    found = _RUNTIME.search(state.table.get("runtime", ""))
    if found is None or not state.boot_ms:
        return None
    days, hours, minutes, seconds = (int(number) for number in found.groups())
    runtime_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    return state.boot_ms + runtime_ms + 500 - now_ms


def replication_findings(place: BrokerAddress, slaves: list[BrokerAddress], found: ReplicationView) -> list[Finding]:
    """What a master tells of its slaves, judged."""
    name = str(place)
    if not slaves:
        return []
    findings = [
        _warning(
            "replication",
            name,
            f"slave {slave.address} is {slave.behind_bytes:,} bytes behind",
            "look at the load, the disk and the network of both machines",
        )
        for slave in found.slaves
        if slave.behind_bytes > SLAVE_BEHIND_MAX
    ]
    if len(found.slaves) < len(slaves):
        findings.append(
            _error(
                "replication",
                name,
                f"{len(slaves)} slaves are registered, and {len(found.slaves)} replicate",
                "see that slaves reach brokerIP2 and haListenPort of the master",
            )
        )
    return findings or [_ok("replication", name, f"{_counted(len(found.slaves), 'slave')} in step")]


def _group_findings(brokers: Iterable[BrokerAddress]) -> list[Finding]:
    by_name: dict[str, list[BrokerAddress]] = {}
    for place in brokers:
        by_name.setdefault(place.broker_name, []).append(place)
    return [
        _error(
            "master",
            name,
            "has no master: nothing can be sent to its queues",
            "start the broker with brokerId 0, or promote a slave",
        )
        for name, places in by_name.items()
        if not any(place.is_master for place in places)
    ]


def _version_findings(states: Iterable[BrokerState]) -> list[Finding]:
    versions = sorted({state.version for state in states if state.version})
    if len(versions) < 2:
        return []
    return [
        _note("version", "brokers", f"run different versions: {', '.join(versions)}", "finish the upgrade, or know why")
    ]


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    return host.startswith("127.") or host in ("localhost", "::1")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _ok(check: str, subject: str, what: str) -> Finding:
    return Finding(check=check, subject=subject, severity=Severity.OK, what=what)


def _note(check: str, subject: str, what: str, fix: str) -> Finding:
    return Finding(check=check, subject=subject, severity=Severity.NOTE, what=what, fix=fix)


def _warning(check: str, subject: str, what: str, fix: str) -> Finding:
    return Finding(check=check, subject=subject, severity=Severity.WARNING, what=what, fix=fix)


def _error(check: str, subject: str, what: str, fix: str) -> Finding:
    return Finding(check=check, subject=subject, severity=Severity.ERROR, what=what, fix=fix)
