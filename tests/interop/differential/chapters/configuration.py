"""Configuration over the wire: told, changed, refused; and permission taken from the whole broker."""

from __future__ import annotations

from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import ask, create_topic, pull, send
from tests.interop.differential.steps import Ask, Outcome, Step, chapter

_TOLD = (
    *("brokerName", "brokerClusterName", "brokerId", "brokerRole", "brokerPermission", "flushDiskType"),
    *("enablePropertyFilter", "maxMessageSize", "autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
    *("defaultTopicQueueNums", "messageDelayLevel", "fileReservedTime", "deleteWhen", "transactionTimeOut"),
    *("transactionCheckMax", "transactionCheckInterval", "longPollingEnable", "flushConsumerOffsetInterval"),
)


def _told(outcome: Outcome) -> Outcome:
    settings = (outcome.get("body") or {}).get("settings") or {}
    return {
        **{key: value for key, value in outcome.items() if key != "body"},
        **{key: settings.get(key) for key in _TOLD},
    }


def _change(name: str, text: str) -> Ask:
    return ask(name, Rq.UPDATE_BROKER_CONFIG, body=text.encode())


CONFIGURATION: list[Step] = chapter(
    "configuration",
    ask("told", Rq.GET_BROKER_CONFIG, view=_told),
    _change("change one", "flushConsumerOffsetInterval=4000"),
    _change("change two", "longPollingEnable=false\nshortPollingTimeMills=500"),
    _change("change back", "longPollingEnable=true"),
    ask("told after the change", Rq.GET_BROKER_CONFIG, view=_told),
    _change("change what is forbidden", "brokerConfigPath=/tmp/elsewhere"),
    _change("change the list of what is forbidden", "configBlackList=none"),
    _change("change the home", "rocketmqHome=/tmp"),
    _change("change what is unknown", "noSuchSetting=1"),
    _change("change to words for a number", "flushConsumerOffsetInterval=soon"),
    _change("change to what is no truth", "rejectPullConsumerEnable=perhaps"),
    _change("change nothing", ""),
    ask("change without a body", Rq.UPDATE_BROKER_CONFIG),
    _change("change by what is no setting", "just words"),
    ask("told when all was tried", Rq.GET_BROKER_CONFIG, view=_told),
    create_topic("an ordered topic to be refused", "d_refused", queues=1, order=True),
    _change("take writing away", "brokerPermission=4"),
    send("a send when nobody may write", "d_plain"),
    send("an ordered send when nobody may write", "d_refused"),
    ask("send back when nobody may write", Rq.CONSUMER_SEND_MSG_BACK, offset=0, group="d_retries", delayLevel=1),
    pull("a pull when nobody may write", "d_plain"),
    _change("take reading away", "brokerPermission=2"),
    pull("a pull when nobody may read", "d_plain"),
    pull("a lite pull when nobody may read", "d_plain", code=Rq.LITE_PULL_MESSAGE),
    _change("give both back", "brokerPermission=6"),
    _change("forbid lite pulls", "litePullMessageEnable=false"),
    pull("a lite pull when it is forbidden", "d_plain", code=Rq.LITE_PULL_MESSAGE),
    _change("allow lite pulls", "litePullMessageEnable=true"),
    _change("forbid transactions", "rejectTransactionMessage=true"),
    send(
        "a half message when it is forbidden", "d_transaction", properties={"TRAN_MSG": "true", "PGROUP": "d_bookers"}
    ),
    _change("allow transactions", "rejectTransactionMessage=false"),
    _change("forbid sql", "enablePropertyFilter=false"),
    pull("sql when it is forbidden", "d_sql", subscription="size > 4", expressionType="SQL92"),
    ask(
        "check of sql when it is forbidden",
        Rq.CHECK_CLIENT_CONFIG,
        body=b'{"clientId":"c@1","group":"d_members","subscriptionData":{"topic":"d_sql","subString":"size > 4",'
        b'"expressionType":"SQL92"}}',
    ),
    _change("allow sql", "enablePropertyFilter=true"),
    _change("forbid new groups", "autoCreateSubscriptionGroup=false"),
    pull("as a new group when it is forbidden", "d_plain", group="d_too_late"),
    ask("a new group when it is forbidden", Rq.GET_SUBSCRIPTIONGROUP_CONFIG, group="d_too_late"),
    ask(
        "send back as a new group when it is forbidden",
        Rq.CONSUMER_SEND_MSG_BACK,
        offset=0,
        group="d_too_late",
        delayLevel=1,
    ),
    send("to the retry topic of a new group when it is forbidden", "%RETRY%d_too_late"),
    ask(
        "commit as a new group when it is forbidden",
        Rq.UPDATE_CONSUMER_OFFSET,
        consumerGroup="d_too_late",
        topic="d_plain",
        queueId=0,
        commitOffset=1,
    ),
    _change("allow new groups", "autoCreateSubscriptionGroup=true"),
    _change("accept sends in a while", "startAcceptSendRequestTimeStamp=4000000000000"),
    send("before sends are accepted", "d_plain"),
    _change("accept sends now", "startAcceptSendRequestTimeStamp=0"),
    send("when sends are accepted", "d_plain"),
    _change("do not trace", "traceOn=false"),
    send("without a trace", "d_plain"),
    _change("trace", "traceOn=true"),
)

AUTO_CREATE: list[Step] = chapter(
    "configuration of the template",
    _change("forbid new topics", "autoCreateTopicEnable=false"),
    send("to an unknown topic when it is forbidden", "d_never_made"),
    send("to an unknown topic of the cluster when it is forbidden", "d_never_made_two", defaultTopic="DefaultCluster"),
    send("to an unknown retry topic when it is forbidden", "%RETRY%d_made_all_the_same"),
    ask("the template when it is forbidden", Rq.GET_TOPIC_CONFIG, topic="TBW102"),
    ask("that topic", Rq.GET_TOPIC_CONFIG, topic="d_never_made"),
    _change("allow new topics", "autoCreateTopicEnable=true"),
)
