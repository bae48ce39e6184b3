"""Groups that are online: members, subscriptions by version, limits, expiry, who is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.config import BrokerConfig
from fusee.broker.consumers import ConsumerGroup, ConsumerTable, Registered
from fusee.clock import ManualClock
from fusee.errors import InvalidRequestError, SystemBusyError
from fusee.filter import parse_subscription
from fusee.message.hashing import java_string_hash
from fusee.transport.link import Link
from fusee.wire.bodies.heartbeat import ConsumerData, SubscriptionData
from fusee.wire.codes import LanguageCode, ResponseCode


def new_link() -> Link:
    clock = ManualClock()
    return Link(clock=clock, timers=clock)


def wants(*topics: str, version: int = 1, expression: str = "*", **more: Any) -> list[SubscriptionData]:
    return [SubscriptionData(topic=topic, expression=expression, sub_version=version, **more) for topic in topics]


class Desk:
    """A table, its time, and which groups were told."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 1_000_000
        self.table = ConsumerTable(config=BrokerConfig(**settings))
        self.told: list[str] = []
        self.table.listeners.append(lambda group: self.told.append(group.name))

    def beat(
        self,
        link: Link,
        subscriptions: list[SubscriptionData] | None = None,
        *,
        group: str = "g",
        client_id: str = "c",
        model: Any = "CLUSTERING",
        **more: Any,
    ) -> Registered:
        data = ConsumerData(group_name=group, message_model=model, subscription_data_set=subscriptions or [])
        return self.table.register(
            data,
            link,
            client_id=client_id,
            language=LanguageCode.JAVA,
            version=513,
            now_ms=self.now_ms,
            **more,
        )

    def group(self, name: str = "g") -> ConsumerGroup:
        group = self.table.group(name)
        assert group is not None
        return group


def test_register_when_first_makes_the_group() -> None:
    desk, link = Desk(), new_link()
    desk.beat(link, wants("t", expression="A || B"), client_id="c1")
    group = desk.group()
    assert (group.message_model, group.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")
    assert group.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    assert [(m.client_id, m.link, m.language, m.version) for m in group.members.values()] == [
        ("c1", link, LanguageCode.JAVA, 513)
    ]
    subscription = desk.table.subscription("g", "t")
    assert subscription is not None
    assert subscription.tags_codes == frozenset({java_string_hash("A"), java_string_hash("B")})
    assert subscription.version == 1
    assert desk.told == ["g"]


def test_register_when_codes_are_given_takes_them() -> None:
    desk = Desk()
    desk.beat(new_link(), wants("t", expression="A", code_set=[7], tags_set=["A"]))
    subscription = desk.table.subscription("g", "t")
    assert subscription is not None
    assert subscription.tags_codes == frozenset({7})


def test_register_when_expression_is_broken_keeps_it_with_its_fault() -> None:
    desk = Desk()
    desk.beat(new_link(), wants("t", expression="a >", expression_type="SQL92") + wants("u"))
    subscription = desk.table.subscription("g", "t")
    assert subscription is not None
    assert subscription.predicate is None
    assert subscription.fault
    assert desk.table.subscription("g", "u") is not None


def test_register_when_repeated_tells_nobody_and_renews() -> None:
    desk, link = Desk(), new_link()
    desk.beat(link, wants("t"))
    revision = desk.group().revision
    desk.now_ms += 30_000
    member = desk.beat(link, wants("t")).member
    assert desk.told == ["g"]
    assert member.last_update_ms == desk.now_ms
    assert desk.group().revision == revision


def test_register_when_version_is_higher_replaces_without_telling() -> None:
    desk, link = Desk(), new_link()
    desk.beat(link, wants("t", version=5, expression="A"))
    revision = desk.group().revision
    desk.beat(link, wants("t", version=6, expression="B"))
    subscription = desk.table.subscription("g", "t")
    assert subscription is not None
    assert (subscription.expression, subscription.version) == ("B", 6)
    assert desk.told == ["g"]
    assert desk.group().revision > revision


@pytest.mark.parametrize("version", [4, 5])
def test_register_when_version_is_not_higher_keeps_what_is_known(version: int) -> None:
    desk, link = Desk(), new_link()
    desk.beat(link, wants("t", version=5, expression="A"))
    desk.beat(link, wants("t", version=version, expression="B"))
    assert desk.group().subscriptions["t"].data.expression == "A"


def test_register_when_topic_is_missing_removes_it_and_tells() -> None:
    desk, link = Desk(), new_link()
    desk.beat(link, wants("t", "u"))
    desk.beat(link, wants("u"))
    assert desk.told == ["g", "g"]
    assert desk.table.subscription("g", "t") is None
    assert desk.table.groups_of_topic("t") == set()
    assert desk.table.groups_of_topic("u") == {"g"}


def test_register_when_a_topic_is_named_twice_still_removes_the_missing_one() -> None:
    desk, link = Desk(), new_link()
    desk.beat(link, wants("t", "u"))
    desk.beat(link, wants("u", "u"))
    assert set(desk.group().subscriptions) == {"u"}


def test_register_when_without_subscriptions_keeps_them() -> None:
    desk, link = Desk(), new_link()
    desk.beat(link, wants("t"), fingerprint=9)
    second = desk.beat(link, fingerprint=9, without_sub=True)
    assert not second.asks_subscriptions
    assert desk.table.subscription("g", "t") is not None


def test_register_when_fingerprint_differs_asks_once() -> None:
    desk, link = Desk(), new_link()
    assert not desk.beat(link, wants("t"), fingerprint=9).asks_subscriptions
    assert desk.beat(link, wants("t"), fingerprint=8).asks_subscriptions
    assert not desk.beat(link, wants("t"), fingerprint=8).asks_subscriptions


def test_register_when_first_form_came_between_asks() -> None:
    desk, link = Desk(), new_link()
    desk.beat(link, wants("t"), fingerprint=9)
    assert not desk.beat(new_link(), wants("t"), client_id="old").asks_subscriptions
    assert desk.beat(link, wants("t"), fingerprint=9).asks_subscriptions


def test_register_when_nothing_is_known_and_subscriptions_are_left_out_asks() -> None:
    desk, link = Desk(), new_link()
    assert desk.beat(link, fingerprint=9, without_sub=True).asks_subscriptions
    assert desk.beat(link, fingerprint=9, without_sub=True).asks_subscriptions
    desk.beat(link, wants("t"), fingerprint=9)
    assert not desk.beat(link, fingerprint=9, without_sub=True).asks_subscriptions


@pytest.mark.parametrize(("model", "notify"), [("BROADCASTING", True), ("CLUSTERING", False)])
def test_changes_when_broadcasting_or_disabled_are_told_to_nobody(model: str, notify: bool) -> None:
    desk, link, other = Desk(), new_link(), new_link()
    desk.beat(link, wants("t"), model=model, notify=notify)
    desk.beat(other, wants("u"), client_id="d", model=model, notify=notify)
    desk.table.link_lost(other)
    desk.now_ms += 200_000
    desk.table.expire(desk.now_ms)
    assert desk.told == []


def test_register_when_link_has_another_client_id_replaces_the_member_silently() -> None:
    desk, link = Desk(), new_link()
    first = desk.beat(link, wants("t"), client_id="a").member
    second = desk.beat(link, wants("t"), client_id="b").member
    assert not first.is_registered
    assert second.is_registered
    assert desk.group().client_ids == ["b"]
    assert desk.told == ["g"]


def test_unregister_when_last_member_ends_the_group() -> None:
    desk, link = Desk(), new_link()
    member = desk.beat(link, wants("t")).member
    assert desk.table.unregister("g", link)
    assert desk.table.group("g") is None
    assert desk.table.groups_of_topic("t") == set()
    assert not member.is_registered
    assert not desk.table.unregister("g", link)
    assert desk.told == ["g", "g"]


def test_unregister_when_not_a_member_tells_nobody() -> None:
    desk = Desk()
    desk.beat(new_link(), wants("t"))
    desk.told.clear()
    assert not desk.table.unregister("g", new_link())
    assert desk.told == []


def test_link_lost_ends_every_membership_of_it_alone() -> None:
    desk, link, other = Desk(), new_link(), new_link()
    desk.beat(link, wants("t"))
    desk.beat(link, wants("t"), group="h")
    desk.beat(other, wants("t"), client_id="d")
    desk.told.clear()
    desk.table.link_lost(link)
    desk.table.link_lost(link)
    assert list(desk.group().members) == [other]
    assert desk.table.group("h") is None
    assert sorted(desk.told) == ["g", "h"]


def test_expire_when_silent_for_longer_than_the_limit_removes_and_names_the_link_once() -> None:
    desk, link, other = Desk(), new_link(), new_link()
    desk.beat(link, wants("t"))
    desk.beat(link, wants("t"), group="h")
    desk.now_ms += 120_000
    desk.beat(other, wants("t"), client_id="d")
    desk.told.clear()
    assert desk.table.expire(desk.now_ms) == []
    desk.now_ms += 1
    assert desk.table.expire(desk.now_ms) == [link]
    assert list(desk.group().members) == [other]
    assert desk.table.group("h") is None
    assert sorted(desk.told) == ["g", "h"]


def test_register_when_group_is_full_refuses_the_next_and_keeps_the_others() -> None:
    desk, link = Desk(clients_per_group_max=1), new_link()
    desk.beat(link, wants("t"))
    with pytest.raises(SystemBusyError, match="clientsPerGroupMax") as refused:
        desk.beat(new_link(), wants("t", "u"), client_id="d")
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert desk.table.subscription("g", "u") is None
    desk.beat(link, wants("t"))


def test_register_when_too_many_topics_changes_nothing() -> None:
    desk = Desk(subscriptions_per_group_max=2)
    with pytest.raises(InvalidRequestError, match="subscriptionsPerGroupMax") as refused:
        desk.beat(new_link(), wants("a", "b", "c"))
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert desk.table.group("g") is None


def test_client_ids_when_a_client_has_two_links_names_it_once() -> None:
    desk, old, new = Desk(), new_link(), new_link()
    desk.beat(old, wants("t"))
    desk.now_ms += 1
    desk.beat(new, wants("t"))
    assert desk.group().client_ids == ["c"]
    member = desk.table.member("g", "c")
    assert member is not None
    assert member.link is new
    assert desk.table.member("g", "x") is None
    assert desk.table.member("x", "c") is None


def test_known_subscription_when_only_pulled_is_what_the_pull_said_until_it_is_old() -> None:
    desk = Desk()
    subscription = parse_subscription("t", "B||A")
    desk.table.note_pull("g", "t", subscription, desk.now_ms)
    data = desk.table.known_subscription("g", "t")
    assert data is not None
    assert (data.expression, data.tags_set, data.sub_version) == (subscription.expression, ["A", "B"], desk.now_ms)
    assert sorted(data.code_set) == sorted(subscription.tags_codes or ())
    assert desk.table.subscription("g", "t") is None
    desk.beat(new_link(), wants("t", version=3))
    known = desk.table.known_subscription("g", "t")
    assert known is not None
    assert known.sub_version == 3
    desk.table.expire(desk.now_ms + 600_001)
    assert desk.table.known_subscription("g", "t") is None
    assert desk.table.known_subscription("g", "x") is None


GROUPS, TOPICS = ("g", "h"), ("t", "u", "v")
actions = st.lists(
    st.one_of(
        st.tuples(
            st.just("beat"),
            st.integers(0, 2),
            st.sampled_from(GROUPS),
            st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3)),
        ),
        st.tuples(st.just("leave"), st.integers(0, 2), st.sampled_from(GROUPS)),
        st.tuples(st.just("lost"), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.integers(1, 90_000)),
    ),
    max_size=30,
)


@given(actions)
def test_table_agrees_with_the_rules_whatever_happens(script: list[tuple[Any, ...]]) -> None:
    desk, links = Desk(), [new_link() for _ in range(3)]
    members: dict[str, dict[Link, int]] = {}
    versions: dict[str, dict[str, int]] = {}

    def leave(group: str, link: Link) -> None:
        if members.get(group, {}).pop(link, None) is not None and not members[group]:
            del members[group], versions[group]

    for what, *how in script:
        if what == "beat":
            link, group, topics = links[how[0]], how[1], how[2]
            desk.beat(link, [SubscriptionData(topic=t, sub_version=v) for t, v in topics.items()], group=group)
            members.setdefault(group, {})[link] = desk.now_ms
            known = versions.get(group, {})
            versions[group] = {t: max(v, known.get(t, 0)) for t, v in topics.items()}
        elif what == "leave":
            desk.table.unregister(how[1], links[how[0]])
            leave(how[1], links[how[0]])
        elif what == "lost":
            desk.table.link_lost(links[how[0]])
            for group in GROUPS:
                leave(group, links[how[0]])
        else:
            desk.now_ms += how[0]
            silent = {link for group in members.values() for link, at in group.items() if desk.now_ms - at > 120_000}
            for group in GROUPS:
                for link, at in list(members.get(group, {}).items()):
                    if desk.now_ms - at > 120_000:
                        leave(group, link)
            assert set(desk.table.expire(desk.now_ms)) == silent
        assert {name: set(group.members) for name, group in desk.table.all().items()} == {
            name: set(group) for name, group in members.items()
        }
        for group in GROUPS:
            for topic in TOPICS:
                subscription = desk.table.subscription(group, topic)
                assert (subscription and subscription.version) == versions.get(group, {}).get(topic)
        for topic in TOPICS:
            assert desk.table.groups_of_topic(topic) == {g for g, topics in versions.items() if topic in topics}
