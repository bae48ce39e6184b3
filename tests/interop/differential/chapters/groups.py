"""Consumer groups: made, changed, listed, forbidden, deleted."""

from __future__ import annotations

from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import as_json, ask, create_group, group_settings
from tests.interop.differential.steps import Step, chapter, in_body, kept, only_keys

_WHOLE = {
    "brokerId": 0,
    "consumeBroadcastEnable": False,
    "consumeEnable": True,
    "consumeFromMinEnable": False,
    "consumeMessageOrderly": True,
    "consumeTimeoutMinute": 7,
    "groupSysFlag": 1,
    "notifyConsumerIdsChangedEnable": False,
    "retryMaxTimes": 3,
    "retryQueueNums": 2,
    "whichBrokerWhenConsumeSlowly": 1,
}

BEGINNING: list[Step] = chapter(
    "groups",
    ask("at the beginning", Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    create_group("create plain", "d_readers"),
    create_group("create the same again", "d_readers"),
    *(create_group(f"create {group}", group) for group in ("d_committers", "d_cloned", "d_movers", "d_lax_committers")),
    create_group("create with everything set", "d_whole", settings=_WHOLE),
    create_group("create disabled", "d_disabled", settings={"consumeEnable": False}),
    create_group("create without broadcast", "d_no_broadcast", settings={"consumeBroadcastEnable": False}),
    create_group("create without retries", "d_no_retries", settings={"retryQueueNums": 0}),
    create_group("create for retries", "d_retries", settings={"retryMaxTimes": 2}),
    create_group(
        "create with growing pauses",
        "d_exponential",
        settings={
            "groupRetryPolicy": {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "max": 2000}}
        },
    ),
    create_group("create with an attribute", "d_attribute", settings={"attributes": {"+no.such": "1"}}),
    create_group("create with a known attribute", "d_attribute", settings={"attributes": {"+priority.factor": "50"}}),
    create_group("create with an unknown field", "d_unknown_field", settings={"noSuchField": 5}),
    create_group("create with words for numbers", "d_words", settings={"retryMaxTimes": "three"}),
    create_group("create with a bad letter", "d readers"),
    create_group("create with percent and pipe", "d_a%b|c"),
    create_group("create with a name of 255 letters", "g" * 255),
    create_group("create with a name of 256 letters", "g" * 256),
    create_group("create with an empty name", ""),
    create_group("create without a name", None),
    create_group("create one of the system", "CID_RMQ_SYS_MINE"),
    ask("create from nothing", Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
    ask("create from text that is no json", Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b"{no"),
    ask("create from a list", Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b"[]"),
    ask("of plain", Rq.GET_SUBSCRIPTIONGROUP_CONFIG, group="d_readers"),
    ask("of the whole", Rq.GET_SUBSCRIPTIONGROUP_CONFIG, group="d_whole"),
    ask("of the exponential", Rq.GET_SUBSCRIPTIONGROUP_CONFIG, group="d_exponential"),
    ask("of the one with attributes", Rq.GET_SUBSCRIPTIONGROUP_CONFIG, group="d_attribute"),
    ask("of a tool", Rq.GET_SUBSCRIPTIONGROUP_CONFIG, group="TOOLS_CONSUMER"),
    ask("of an unknown one, which makes it", Rq.GET_SUBSCRIPTIONGROUP_CONFIG, group="d_made_by_asking"),
    ask("of an unknown one with a bad letter", Rq.GET_SUBSCRIPTIONGROUP_CONFIG, group="d made"),
    ask("of an unknown one with a name that is too long", Rq.GET_SUBSCRIPTIONGROUP_CONFIG, group="m" * 256),
    ask("of nothing", Rq.GET_SUBSCRIPTIONGROUP_CONFIG),
    ask(
        "create several",
        Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        body=as_json({"groupConfigList": [group_settings("d_list_a"), group_settings("d_list_b", retryMaxTimes=1)]}),
    ),
    ask(
        "create several of which one is bad",
        Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        body=as_json({"groupConfigList": [group_settings("d_list_c"), group_settings("d list")]}),
    ),
    ask("create several, namely none", Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=b'{"groupConfigList":[]}'),
    ask("create several from nothing", Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
    ask(
        "all of them",
        Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        keep={"groups.version": lambda answer: as_json(in_body("dataVersion")(answer)).decode()},
    ),
    ask("page one", Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groupSeq=0, maxGroupNum=4),
    ask("page two", Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groupSeq=4, maxGroupNum=4, dataVersion=kept("groups.version")),
    ask(
        "page two of another version",
        Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        groupSeq=4,
        maxGroupNum=4,
        dataVersion='{"counter":1,"stateVersion":0,"timestamp":1}',
    ),
    ask(
        "page behind the end",
        Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        groupSeq=5000,
        maxGroupNum=4,
        dataVersion=kept("groups.version"),
    ),
    ask(
        "page without a size",
        Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        groupSeq=0,
        view=only_keys("subscriptionGroupTable"),
    ),
    ask("page without a beginning", Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, maxGroupNum=2),
    ask("is it readable", Rq.UPDATE_AND_GET_GROUP_FORBIDDEN, group="d_forbidden", topic="d_plain"),
    ask("forbid", Rq.UPDATE_AND_GET_GROUP_FORBIDDEN, group="d_forbidden", topic="d_plain", readable=False),
    ask("is it still readable", Rq.UPDATE_AND_GET_GROUP_FORBIDDEN, group="d_forbidden", topic="d_plain"),
    ask("is another topic readable", Rq.UPDATE_AND_GET_GROUP_FORBIDDEN, group="d_forbidden", topic="d_tags"),
    ask("forbid without a topic", Rq.UPDATE_AND_GET_GROUP_FORBIDDEN, group="d_forbidden", readable=False),
    ask("forbid without a group", Rq.UPDATE_AND_GET_GROUP_FORBIDDEN, topic="d_plain", readable=False),
)

END: list[Step] = chapter(
    "groups at the end",
    ask("allow again", Rq.UPDATE_AND_GET_GROUP_FORBIDDEN, group="d_forbidden", topic="d_plain", readable=True),
    ask("delete plain", Rq.DELETE_SUBSCRIPTIONGROUP, groupName="d_list_a"),
    ask("delete plain again", Rq.DELETE_SUBSCRIPTIONGROUP, groupName="d_list_a"),
    ask("delete with its offsets", Rq.DELETE_SUBSCRIPTIONGROUP, groupName="d_committers", cleanOffset=True),
    ask("its offsets are gone", Rq.QUERY_TOPICS_BY_CONSUMER, group="d_committers"),
    ask("offsets before the group is deleted", Rq.QUERY_TOPICS_BY_CONSUMER, group="d_cloned"),
    ask("delete without its offsets", Rq.DELETE_SUBSCRIPTIONGROUP, groupName="d_cloned", cleanOffset=False),
    ask("its offsets are still there", Rq.QUERY_TOPICS_BY_CONSUMER, group="d_cloned"),
    ask("delete the unknown", Rq.DELETE_SUBSCRIPTIONGROUP, groupName="d_never_heard"),
    ask("delete nothing", Rq.DELETE_SUBSCRIPTIONGROUP),
    ask("delete one of the system", Rq.DELETE_SUBSCRIPTIONGROUP, groupName="CID_RMQ_SYS_MINE"),
    ask("what is left", Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, view=only_keys("subscriptionGroupTable")),
    ask("what is forbidden", Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, view=only_keys("forbiddenTable")),
)
