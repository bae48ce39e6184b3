"""The same question to the name servers under test and to the real one: the answers must say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.harness import probe
from tests.interop.harness.servers import CLUSTER

if TYPE_CHECKING:
    from tests.interop.harness.cluster import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.quick, pytest.mark.timeout(600)]

VERSION_4_9_3 = 401

QUESTIONS: dict[str, tuple[int, dict[str, str]]] = {
    "route": (probe.GET_ROUTE, {"topic": "TBW102"}),
    "route_in_standard_json": (probe.GET_ROUTE, {"topic": "TBW102", "acceptStandardJsonOnly": "true"}),
    "route_of_unknown_topic": (probe.GET_ROUTE, {"topic": "interop_unknown"}),
    "route_of_another_zone": (
        probe.GET_ROUTE,
        {"topic": "TBW102", "__ZONE_MODE": "true", "__ZONE_NAME": "elsewhere"},
    ),
    "cluster_info": (probe.GET_CLUSTER_INFO, {}),
    "all_topics": (probe.GET_ALL_TOPICS, {}),
    "topics_of_cluster": (probe.GET_TOPICS_OF_CLUSTER, {"cluster": CLUSTER}),
    "topics_of_unknown_cluster": (probe.GET_TOPICS_OF_CLUSTER, {"cluster": "interop_unknown"}),
    "system_topics": (probe.GET_SYSTEM_TOPICS, {}),
    "unit_topics": (probe.GET_UNIT_TOPICS, {}),
    "subscribed_unit_topics": (probe.GET_SUBSCRIBED_UNIT_TOPICS, {}),
    "subscribed_non_unit_topics": (probe.GET_SUBSCRIBED_NON_UNIT_TOPICS, {}),
    "unknown_kv": (probe.GET_KV_CONFIG, {"namespace": "interop_unknown", "key": "k"}),
    "unknown_kv_namespace": (probe.GET_KV_NAMESPACE, {"namespace": "interop_unknown"}),
    "broker_member_group": (
        probe.GET_BROKER_MEMBER_GROUP,
        {"clusterName": CLUSTER, "brokerName": "broker-a"},
    ),
    "unknown_broker_member_group": (
        probe.GET_BROKER_MEMBER_GROUP,
        {"clusterName": CLUSTER, "brokerName": "interop_unknown"},
    ),
    "unknown_code": (9999, {}),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_answer_equals_oracle(cluster: Cluster, name: str) -> None:
    code, fields = QUESTIONS[name]
    assert cluster.oracle is not None
    expected = content(probe.ask(cluster.oracle.address, code, fields))
    for subject in cluster.subjects:
        assert content(probe.ask(subject.address, code, fields)) == expected, subject.name


def test_route_for_old_client_has_the_same_content(cluster: Cluster) -> None:
    answers = [
        probe.ask(server.address, probe.GET_ROUTE, {"topic": "TBW102"}, version=VERSION_4_9_3)
        for server in cluster.name_servers
    ]
    assert content(answers[0]) == content(answers[1]) == content(answers[2])


def test_data_version_of_the_broker_is_kept(cluster: Cluster) -> None:
    """The version that the broker registered comes back to whoever asks with another one."""
    fields = {
        "brokerName": "broker-a",
        "brokerAddr": cluster.broker.address,
        "clusterName": CLUSTER,
        "brokerId": "0",
    }
    body = b'{"counter":-1,"stateVersion":0,"timestamp":0}'
    answers = [
        probe.ask(server.address, probe.QUERY_DATA_VERSION, fields, body=body) for server in cluster.name_servers
    ]
    assert answers[2].fields["changed"] == "true"
    assert content(answers[0]) == content(answers[1]) == content(answers[2])


def content(answer: probe.Answer) -> dict[str, Any]:
    """What an answer says, whatever the order in which sets and tables were written.

    Two differences are meant. The lines of a complaint after the first are advice: Java's point to its web site,
    ours say what to do. And Java forgets to clear the remark of a fresh response in some successful answers
    ("not set any response code"), which nobody reads.
    """
    complaint = answer.remark.splitlines()[0] if answer.code != 0 and answer.remark else None
    return {
        "code": answer.code,
        "complaint": complaint,
        "fields": answer.fields,
        "body": unordered(answer.json()),
    }


def unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((unordered(item) for item in value), key=repr)
    return value
