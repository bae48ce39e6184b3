"""Users and their rights (access control 2.0). Each broker keeps its own: a change is made at every broker meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fusee.admin.reach import Reach
from fusee.admin.views import AccessRule, AccessView, UserView
from fusee.errors import ConfigError, NoPermissionError
from fusee.wire.bodies.access import AclInfo, Policy, PolicyEntry, UserInfo
from fusee.wire.codes import RequestCode
from fusee.wire.headers.admin import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateAcl,
    UpdateUser,
)
from fusee.wire.lenient_json import decode_json, dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fusee.admin.views import BrokerAddress

UserType = Literal["Super", "Normal"]


class AccessCalls(Reach):
    """Users and rights at brokers."""

    async def create_user(
        self,
        username: str,
        password: str,
        *,
        user_type: UserType = "Normal",
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[BrokerAddress, ...]:
        """Add a user. Only a super user may add another."""
        user = UserInfo(username=username, password=password, user_type=user_type)
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await self._ask_brokers(
            brokers, RequestCode.AUTH_CREATE_USER, CreateUser(username=username), body=dumps_fastjson(user)
        )
        return answers.complete(f"add user {username!r}")

    async def update_user(
        self,
        username: str,
        *,
        password: str | None = None,
        user_type: UserType | None = None,
        status: Literal["enable", "disable"] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[BrokerAddress, ...]:
        """Change what is given of a user."""
        if password is None and user_type is None and status is None:
            raise ConfigError(f"nothing is given to change of user {username!r}: a password, a type or a status")
        user = UserInfo(username=username, password=password, user_type=user_type, user_status=status)
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await self._ask_brokers(
            brokers, RequestCode.AUTH_UPDATE_USER, UpdateUser(username=username), body=dumps_fastjson(user)
        )
        return answers.complete(f"change user {username!r}")

    async def delete_user(
        self, username: str, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Delete a user."""
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await self._ask_brokers(brokers, RequestCode.AUTH_DELETE_USER, DeleteUser(username=username))
        return answers.complete(f"delete user {username!r}")

    async def user(self, broker: str, username: str) -> UserView | None:
        """One user as one broker has it; None when there is none."""
        place = await self._one_broker(broker)
        answer = await self._ask(place.address, RequestCode.AUTH_GET_USER, GetUser(username=username))
        return _user(decode_json(answer.body, UserInfo)) if answer.body else None

    async def list_users(self, broker: str, filter: str = "") -> tuple[UserView, ...]:  # noqa: A002 - its name there
        """Users of one broker whose name contains a text, sorted."""
        place = await self._one_broker(broker)
        answer = await self._ask(place.address, RequestCode.AUTH_LIST_USER, ListUsers(filter=filter or None))
        found = decode_json(answer.body, list[UserInfo]) if answer.body else []
        return tuple(sorted(map(_user, found), key=lambda each: each.username))

    async def copy_users(self, source: str, target: str, usernames: Sequence[str] = ()) -> tuple[str, ...]:
        """Copy users with their passwords from one broker to another, all or some (mqadmin copyUser); their names.

        A user that the target has gets the password, type and status of the source.
        """
        origin, place = await self._one_broker(source), await self._one_broker(target)
        answer = await self._ask(origin.address, RequestCode.AUTH_LIST_USER, ListUsers())
        found = decode_json(answer.body, list[UserInfo]) if answer.body else []
        copied: list[str] = []
        for user in found:
            name = user.username or ""
            if usernames and name not in usernames:
                continue
            is_there = await self.user(target, name) is not None
            code = RequestCode.AUTH_UPDATE_USER if is_there else RequestCode.AUTH_CREATE_USER
            header = UpdateUser(username=name) if is_there else CreateUser(username=name)
            await self._ask(place.address, code, header, body=dumps_fastjson(user))
            copied.append(name)
        return tuple(sorted(copied))

    # Rights

    async def create_access(
        self, subject: str, rules: Iterable[AccessRule], *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Give rights to a subject such as `User:alice` that has none yet."""
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await self._ask_brokers(
            brokers, RequestCode.AUTH_CREATE_ACL, CreateAcl(subject=subject), body=_acl_body(subject, rules)
        )
        return answers.complete(f"give rights to {subject!r}")

    async def update_access(
        self, subject: str, rules: Iterable[AccessRule], *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Change the rights of a subject, resource by resource; others stay."""
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await self._ask_brokers(
            brokers, RequestCode.AUTH_UPDATE_ACL, UpdateAcl(subject=subject), body=_acl_body(subject, rules)
        )
        return answers.complete(f"change the rights of {subject!r}")

    async def delete_access(
        self,
        subject: str,
        *,
        resource: str | None = None,
        policy_type: str | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[BrokerAddress, ...]:
        """Take rights from a subject: on one resource, or all."""
        brokers = await self.brokers(cluster=cluster, broker=broker)
        header = DeleteAcl(subject=subject, resource=resource, policy_type=policy_type)
        answers = await self._ask_brokers(brokers, RequestCode.AUTH_DELETE_ACL, header)
        return answers.complete(f"take rights from {subject!r}")

    async def access(self, broker: str, subject: str) -> AccessView | None:
        """The rights of one subject as one broker has them; None when it has none."""
        place = await self._one_broker(broker)
        try:
            answer = await self._ask(place.address, RequestCode.AUTH_GET_ACL, GetAcl(subject=subject))
        except NoPermissionError:
            # This is also how the reference says that there is no such user.
            kind, _, name = subject.partition(":")
            if kind == "User" and await self.user(broker, name) is None:
                return None
            raise
        return _access(decode_json(answer.body, AclInfo)) if answer.body else None

    async def list_access(
        self, broker: str, *, subject_filter: str = "", resource_filter: str = ""
    ) -> tuple[AccessView, ...]:
        """Rights at one broker, sorted by subject."""
        place = await self._one_broker(broker)
        header = ListAcls(subject_filter=subject_filter or None, resource_filter=resource_filter or None)
        answer = await self._ask(place.address, RequestCode.AUTH_LIST_ACL, header)
        found = decode_json(answer.body, list[AclInfo]) if answer.body else []
        return tuple(sorted(map(_access, found), key=lambda each: each.subject))

    async def copy_access(self, source: str, target: str, subjects: Sequence[str] = ()) -> tuple[str, ...]:
        """Copy rights from one broker to another, all or of some subjects (mqadmin copyAcl); the subjects."""
        copied: list[str] = []
        for view in await self.list_access(source):
            if subjects and view.subject not in subjects:
                continue
            if await self.access(target, view.subject) is None:
                await self.create_access(view.subject, view.rules, broker=target)
            else:
                await self.update_access(view.subject, view.rules, broker=target)
            copied.append(view.subject)
        return tuple(copied)


def _user(user: UserInfo) -> UserView:
    return UserView(
        username=user.username or "", user_type=user.user_type or "Normal", status=user.user_status or "enable"
    )


def _access(acl: AclInfo) -> AccessView:
    return AccessView(
        subject=acl.subject or "",
        rules=tuple(
            AccessRule(
                resource=entry.resource or "",
                actions=tuple(entry.actions),
                source_ips=tuple(entry.source_ips or ()),
                decision=entry.decision or "Allow",
                policy_type=policy.policy_type or "Custom",
            )
            for policy in acl.policies
            for entry in policy.entries
        ),
    )


def _acl_body(subject: str, rules: Iterable[AccessRule]) -> bytes:
    by_type: dict[str, list[PolicyEntry]] = {}
    for rule in rules:
        by_type.setdefault(rule.policy_type, []).append(
            PolicyEntry(
                resource=rule.resource,
                actions=list(rule.actions),
                source_ips=list(rule.source_ips) or None,
                decision=rule.decision,
            )
        )
    if not by_type:
        raise ConfigError(f"no rule is given for {subject!r}")
    policies = [Policy(policy_type=kind, entries=entries) for kind, entries in by_type.items()]
    return dumps_fastjson(AclInfo(subject=subject, policies=policies))
