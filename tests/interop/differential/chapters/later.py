"""What Fusee does not serve yet or never will: the answer must be an error that says so, never a wrong result."""

from __future__ import annotations

from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import as_json, ask, create_topic, max_offset, send
from tests.interop.differential.steps import Step, chapter, only_code

_POP = {
    "consumerGroup": "d_pop",
    "topic": "d_pop_topic",
    "queueId": -1,
    "maxMsgNums": 8,
    "invisibleTime": 60_000,
    "pollTime": 0,
    "bornTime": 0,
    "initMode": 0,
}
_ACK = {
    "consumerGroup": "d_pop",
    "topic": "d_pop_topic",
    "queueId": 0,
    "extraInfo": "0 1 60000 0 0 broker-a 0 0",
    "offset": 0,
}
_MAPPING = {
    "bname": "broker-a",
    "epoch": 1,
    "hostedQueues": {},
    "scope": "global",
    "topic": "d_static",
    "totalQueues": 1,
}

NOT_YET: list[Step] = chapter(
    "not yet",
    create_topic("a topic to pop from", "d_pop_topic", queues=1),
    create_topic("a topic for exact times", "d_timer", queues=1),
    ask("pop", Rq.POP_MESSAGE, **_POP, view=only_code),  # type: ignore[arg-type]
    ask("acknowledge", Rq.ACK_MESSAGE, **_ACK, view=only_code),  # type: ignore[arg-type]
    ask("acknowledge several", Rq.BATCH_ACK_MESSAGE, body=b'{"brokerName":"broker-a","acks":[]}', view=only_code),
    ask("change the invisible time", Rq.CHANGE_MESSAGE_INVISIBLETIME, invisibleTime=1000, **_ACK, view=only_code),  # type: ignore[arg-type]
    ask(
        "is there something",
        Rq.NOTIFICATION,
        consumerGroup="d_pop",
        topic="d_pop_topic",
        queueId=0,
        pollTime=0,
        bornTime=0,
        view=only_code,
    ),
    ask("polling info", Rq.POLLING_INFO, consumerGroup="d_pop", topic="d_pop_topic", queueId=0, view=only_code),
    ask(
        "assignment",
        Rq.QUERY_ASSIGNMENT,
        body=as_json(
            {
                "clientId": "nobody@1",
                "consumerGroup": "d_absent",
                "messageModel": "CLUSTERING",
                "strategyName": "AVG",
                "topic": "d_plain",
            }
        ),
        view=only_code,
    ),
    ask(
        "set the request mode",
        Rq.SET_MESSAGE_REQUEST_MODE,
        body=as_json({"topic": "d_plain", "consumerGroup": "d_pop", "mode": "PULL", "popShareQueueNum": 0}),
        view=only_code,
    ),
    ask("all request modes", Rq.GET_ALL_MESSAGE_REQUEST_MODE, view=only_code),
    ask("roll pops back", Rq.POP_ROLLBACK, view=only_code),
    ask(
        "recall",
        Rq.RECALL_MESSAGE,
        topic="d_plain",
        recallHandle="no handle",
        producerGroup="d_producers",
        view=only_code,
    ),
    send("a message for an exact time", "d_timer", properties={"TIMER_DELAY_SEC": "3600"}, view=only_code),
    send(
        "a message for an exact time in milliseconds",
        "d_timer",
        properties={"TIMER_DELAY_MS": "3600000"},
        view=only_code,
    ),
    send("a message for a time long over", "d_timer", properties={"TIMER_DELIVER_MS": "1000"}, view=only_code),
    send("a message for a time too far away", "d_timer", properties={"TIMER_DELAY_SEC": "999999999"}, view=only_code),
    send("a message for a time in words", "d_timer", properties={"TIMER_DELIVER_MS": "soon"}, view=only_code),
    max_offset("what is for later is not there now", "d_timer"),
    ask("timer check point", Rq.GET_TIMER_CHECK_POINT, view=only_code),
    ask("timer metrics", Rq.GET_TIMER_METRICS, view=only_code),
    ask("another timer engine", Rq.SWITCH_TIMER_ENGINE, view=only_code),
    ask("create a user", Rq.AUTH_CREATE_USER, username="u", body=b'{"password":"p","username":"u"}', view=only_code),
    ask("update a user", Rq.AUTH_UPDATE_USER, username="u", body=b'{"password":"q","username":"u"}', view=only_code),
    ask("one user", Rq.AUTH_GET_USER, username="u", view=only_code),
    ask("all users", Rq.AUTH_LIST_USER, view=only_code),
    ask("delete a user", Rq.AUTH_DELETE_USER, username="u", view=only_code),
    ask(
        "create a right",
        Rq.AUTH_CREATE_ACL,
        subject="User:u",
        body=b'{"subject":"User:u","policies":[]}',
        view=only_code,
    ),
    ask(
        "update a right",
        Rq.AUTH_UPDATE_ACL,
        subject="User:u",
        body=b'{"subject":"User:u","policies":[]}',
        view=only_code,
    ),
    ask("one right", Rq.AUTH_GET_ACL, subject="User:u", view=only_code),
    ask("all rights", Rq.AUTH_LIST_ACL, view=only_code),
    ask("delete a right", Rq.AUTH_DELETE_ACL, subject="User:u", view=only_code),
    ask(
        "a static topic",
        Rq.UPDATE_AND_CREATE_STATIC_TOPIC,
        topic="d_static",
        defaultTopic="TBW102",
        readQueueNums=1,
        writeQueueNums=1,
        perm=6,
        topicFilterType="SINGLE_TAG",
        order=False,
        body=as_json(_MAPPING),
        view=only_code,
    ),
    ask("state of replicas", Rq.GET_BROKER_HA_STATUS, view=only_code),
    ask("exchange with replicas", Rq.EXCHANGE_BROKER_HA_INFO, view=only_code),
    ask("reset the flushed offset", Rq.RESET_MASTER_FLUSH_OFFSET, masterFlushOffset=0, view=only_code),
    ask("epochs", Rq.GET_BROKER_EPOCH_CACHE, view=only_code),
    ask("cold data", Rq.GET_COLD_DATA_FLOW_CTR_INFO, view=only_code),
    ask("limit cold data", Rq.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"d_readers=1000", view=only_code),
    ask("limit cold data no more", Rq.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=b"d_readers", view=only_code),
    ask("read ahead", Rq.SET_COMMITLOG_READ_MODE, READ_AHEAD_MODE="0", view=only_code),
    ask("read ahead in an unknown way", Rq.SET_COMMITLOG_READ_MODE, READ_AHEAD_MODE="9", view=only_code),
    ask("read ahead without saying how", Rq.SET_COMMITLOG_READ_MODE, view=only_code),
    ask("progress of rocksdb", Rq.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, topic="d_plain", view=only_code),
    ask("export of rocksdb", Rq.EXPORT_ROCKSDB_CONFIG_TO_JSON, configType="topics", view=only_code),
    ask("lite topics", Rq.GET_BROKER_LITE_INFO, view=only_code),
    ask("parent topic", Rq.GET_PARENT_TOPIC_INFO, topic="d_plain", view=only_code),
)

SYSTEM: list[Step] = chapter(
    "a topic with a name of the system",
    send("is sent to", "rmq_sys_unheard_of", defaultTopic="DefaultCluster"),
    ask("system topics", Rq.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
)

NEVER: list[Step] = chapter(
    "never",
    ask("a code that nobody knows", 9999),
    ask("the code zero", 0),
    ask("a negative code", -1),
    *(
        ask(f"code {code.value} {code.name}", code)
        for code in (
            *(Rq.QUERY_BROKER_OFFSET, Rq.GET_TOPIC_CONFIG_LIST, Rq.GET_TOPIC_NAME_LIST, Rq.TRIGGER_DELETE_FILES),
            *(Rq.PUT_KV_CONFIG, Rq.REGISTER_BROKER, Rq.GET_ROUTEINFO_BY_TOPIC, Rq.GET_BROKER_CLUSTER_INFO),
            *(Rq.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Rq.SUSPEND_CONSUMER, Rq.RESET_CONSUMER_OFFSET_IN_BROKER),
            *(Rq.REGISTER_FILTER_SERVER, Rq.CHECK_TRANSACTION_STATE, Rq.NOTIFY_CONSUMER_IDS_CHANGED),
            *(Rq.RESET_CONSUMER_CLIENT_OFFSET, Rq.PUSH_REPLY_MESSAGE_TO_CLIENT, Rq.CONTROLLER_GET_METADATA_INFO),
            *(Rq.ADD_BROKER, Rq.UPDATE_NAMESRV_CONFIG, Rq.QUERY_DATA_VERSION),
        )
    ),
)
