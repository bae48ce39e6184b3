"""Bodies whose details golden frames do not show, or not enough."""

from __future__ import annotations

import pytest

from fusee.errors import ProtocolError
from fusee.wire.bodies.access import AclInfo, Policy, PolicyEntry
from fusee.wire.bodies.group import CustomizedRetryPolicy, GroupRetryPolicy, SubscriptionGroupConfig
from fusee.wire.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from fusee.wire.bodies.locks import LockBatchRequest, LockBatchResponse
from fusee.wire.bodies.offsets import ConsumerOffsetTable, ConsumerStatus, QueueOffsets
from fusee.wire.bodies.pop import BatchAck, BatchAckRequest
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.replication import SyncStateSet
from fusee.wire.bodies.stats import ConsumerRunningInfo, TopicOffset, TopicStats
from fusee.wire.lenient_json import decode_json, dumps_fastjson

QUEUE = QueueRef(topic="T", broker_name="b", queue_id=3)
QUEUE_JSON = b'{"brokerName":"b","queueId":3,"topic":"T"}'


def test_queue_is_a_key_in_key_position() -> None:
    stats = TopicStats(offset_table={QUEUE: TopicOffset(min_offset=1, max_offset=2, last_update_timestamp=3)})
    text = (
        b'{"offsetTable":{' + QUEUE_JSON + b':{"lastUpdateTimestamp":3,"maxOffset":2,"minOffset":1}},"topicPutTps":0.0}'
    )
    assert dumps_fastjson(stats) == text
    assert decode_json(text, TopicStats) == stats


def test_consumer_status_has_tables_of_queues_by_client() -> None:
    status = ConsumerStatus(consumer_table={"c@1": {QUEUE: 7}})
    text = b'{"consumerTable":{"c@1":{' + QUEUE_JSON + b':7}},"messageQueueTable":{}}'
    assert dumps_fastjson(status) == text
    assert decode_json(text, ConsumerStatus) == status


def test_offset_tables_have_bare_queue_ids() -> None:
    table = ConsumerOffsetTable(offset_table={"T@g": {0: 5, 10: 6}})
    text = dumps_fastjson(table)
    assert b'"offsetTable":{"T@g":{0:5,10:6}}' in text
    assert decode_json(text, ConsumerOffsetTable) == table


def test_queue_offsets_when_reference_repeats_an_offset_reads_it() -> None:
    text = b'{"offsetTable":{' + QUEUE_JSON + b':"12"}}'
    assert decode_json(text, QueueOffsets) == QueueOffsets(offset_table={QUEUE: 12})


def test_heartbeat_of_another_language_reads_with_defaults() -> None:
    text = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_ACTIVELY","unitMode":null,'
        b'"subscriptionDataSet":[{"topic":"T","subString":"*","subVersion":"17","tagsSet":null}]}],'
        b'"producerDataSet":null}'
    )
    assert decode_json(text, HeartbeatData) == HeartbeatData(
        client_id="c",
        consumer_data_set=[
            ConsumerData(
                group_name="g",
                consume_type="CONSUME_ACTIVELY",
                subscription_data_set=[SubscriptionData(topic="T", sub_version=17)],
            )
        ],
    )


def test_heartbeat_without_client_id_is_refused() -> None:
    with pytest.raises(ProtocolError, match="clientID"):
        decode_json(b'{"consumerDataSet":[]}', HeartbeatData)


def test_lock_bodies_have_the_names_of_the_wire() -> None:
    request = LockBatchRequest(client_id="c", consumer_group="g", queues=[QUEUE])
    text = b'{"clientId":"c","consumerGroup":"g","mqSet":[' + QUEUE_JSON + b'],"onlyThisBroker":false}'
    assert dumps_fastjson(request) == text
    assert dumps_fastjson(LockBatchResponse(locked=[QUEUE])) == b'{"lockOKMQSet":[' + QUEUE_JSON + b"]}"


def test_lock_request_when_queue_is_repeated_by_reference_reads_it() -> None:
    text = b'{"clientId":"c","consumerGroup":"g","mqSet":[' + QUEUE_JSON + b',{"$ref":"$.mqSet[0]"}]}'
    assert decode_json(text, LockBatchRequest).queues == [QUEUE, QUEUE]


def test_batch_ack_bits_travel_in_base64() -> None:
    ack = BatchAck(
        bits=b"\x03",
        consumer_group="g",
        topic="T",
        queue_id=1,
        start_offset=7,
        revive_queue_id=2,
        pop_timestamp_ms=10,
        invisible_time_ms=20,
    )
    text = dumps_fastjson(BatchAckRequest(broker_name="b", acks=[ack]))
    assert text == (
        b'{"acks":[{"b":"Aw==","c":"g","it":20,"pt":10,"q":1,"r":"0","rq":2,"so":7,"t":"T"}],"brokerName":"b"}'
    )
    assert decode_json(text, BatchAckRequest).acks == [ack]


def test_group_configuration_has_javas_defaults() -> None:
    assert dumps_fastjson(SubscriptionGroupConfig(group_name="G")) == (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G",'
        b'"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )


def test_group_retry_policy_reads_its_details() -> None:
    text = b'{"groupName":"G","groupRetryPolicy":{"customizedRetryPolicy":{"next":[1,2]},"type":"CUSTOMIZED"}}'
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next_ms=[1, 2]))
    assert decode_json(text, SubscriptionGroupConfig).group_retry_policy == policy


def test_defaults_of_two_bodies_are_not_shared() -> None:
    one, other = ConsumerRunningInfo(), ConsumerRunningInfo()
    one.properties["a"] = "b"
    one.queues.clear()
    assert other.properties == {}


def test_access_rules_round_trip() -> None:
    rules = AclInfo(
        subject="User:alice",
        policies=[
            Policy(
                policy_type="Custom",
                entries=[PolicyEntry(resource="Topic:T", actions=["Pub"], source_ips=["10.0.0.0/8"], decision="Allow")],
            )
        ],
    )
    text = dumps_fastjson(rules)
    assert text == (
        b'{"policies":[{"entries":[{"actions":["Pub"],"decision":"Allow","resource":"Topic:T",'
        b'"sourceIps":["10.0.0.0/8"]}],"policyType":"Custom"}],"subject":"User:alice"}'
    )
    assert decode_json(text, AclInfo) == rules


def test_sync_state_set_round_trips() -> None:
    state = SyncStateSet(sync_state_set=[1, 2], sync_state_set_epoch=4)
    assert decode_json(dumps_fastjson(state), SyncStateSet) == state
