from __future__ import annotations

import pytest

from fusee.admin.views import AccessRule, AccessView, UserView
from fusee.errors import ConfigError, NoPermissionError
from fusee.wire.bodies.access import AclInfo, Policy, PolicyEntry, UserInfo
from fusee.wire.codes import RequestCode
from fusee.wire.headers.admin import CreateUser, DeleteAcl, ListAcls, ListUsers
from fusee.wire.lenient_json import decode_json, dumps_fastjson
from tests.admin.scene import Scene, play, scripted

CODES = [code for code in RequestCode if code.name.startswith("AUTH_")]
ALICE = UserInfo(username="alice", password="secret", user_type="Normal", user_status="enable")
RULE = AccessRule(resource="Topic:orders", actions=("Pub", "Sub"), source_ips=("10.0.0.0/8",))
ACL = AclInfo(
    subject="User:alice",
    policies=[
        Policy(
            policy_type="Custom",
            entries=[
                PolicyEntry(
                    resource="Topic:orders", actions=["Pub", "Sub"], source_ips=["10.0.0.0/8"], decision="Allow"
                )
            ],
        )
    ],
)


def test_users_are_made_changed_and_told() -> None:
    async def scene(on: Scene) -> None:
        server = await scripted(on, CODES)
        for code in CODES:
            server.answer(code, lambda ask: ask.reply())
        at = server.address
        await on.do(on.admin.create_user("alice", "secret", user_type="Super", broker=at))
        assert server.last().read(CreateUser).username == "alice"
        made = decode_json(server.last().body, UserInfo)
        assert (made.username, made.password, made.user_type) == ("alice", "secret", "Super")
        await on.do(on.admin.update_user("alice", status="disable", broker=at))
        assert decode_json(server.last().body, UserInfo) == UserInfo(username="alice", user_status="disable")
        with pytest.raises(ConfigError, match="nothing is given"):
            await on.do(on.admin.update_user("alice", broker=at))
        await on.do(on.admin.delete_user("alice", broker=at))
        assert server.last().code == RequestCode.AUTH_DELETE_USER
        assert await on.do(on.admin.user(at, "alice")) is None
        assert await on.do(on.admin.list_users(at)) == ()
        server.answer(RequestCode.AUTH_GET_USER, lambda ask: ask.reply(body=dumps_fastjson(ALICE)))
        server.answer(RequestCode.AUTH_LIST_USER, lambda ask: ask.reply(body=dumps_fastjson([ALICE])))
        assert await on.do(on.admin.user(at, "alice")) == UserView(username="alice")
        assert await on.do(on.admin.list_users(at, "ali")) == (UserView(username="alice"),)
        assert server.last().read(ListUsers).filter == "ali"

    play(scene)


def test_rights_are_given_taken_and_told() -> None:
    async def scene(on: Scene) -> None:
        server = await scripted(on, CODES)
        for code in CODES:
            server.answer(code, lambda ask: ask.reply())
        at = server.address
        for call in (on.admin.create_access, on.admin.update_access):
            await on.do(call("User:alice", [RULE], broker=at))
            assert decode_json(server.last().body, AclInfo) == ACL
            with pytest.raises(ConfigError, match="no rule"):
                await on.do(call("User:alice", [], broker=at))
        await on.do(on.admin.delete_access("User:alice", resource="Topic:orders", broker=at))
        assert server.last().read(DeleteAcl) == DeleteAcl(subject="User:alice", resource="Topic:orders")
        assert await on.do(on.admin.access(at, "User:alice")) is None
        server.answer(RequestCode.AUTH_GET_ACL, lambda ask: ask.reply(body=dumps_fastjson(ACL)))
        server.answer(RequestCode.AUTH_LIST_ACL, lambda ask: ask.reply(body=dumps_fastjson([ACL])))
        view = AccessView(subject="User:alice", rules=(RULE,))
        assert await on.do(on.admin.access(at, "User:alice")) == view
        assert await on.do(on.admin.list_access(at, subject_filter="User:")) == (view,)
        assert server.last().read(ListAcls) == ListAcls(subject_filter="User:")

    play(scene)


def test_access_of_a_user_that_is_not_there_is_none_and_a_refusal_stays_one() -> None:
    async def scene(on: Scene) -> None:
        server = await scripted(on, CODES)
        server.answer(RequestCode.AUTH_GET_ACL, lambda ask: ask.reply(16, remark="The subject is not exist."))
        server.answer(RequestCode.AUTH_GET_USER, lambda ask: ask.reply())
        assert await on.do(on.admin.access(server.address, "User:nobody")) is None
        server.answer(RequestCode.AUTH_GET_USER, lambda ask: ask.reply(body=dumps_fastjson(ALICE)))
        with pytest.raises(NoPermissionError):
            await on.do(on.admin.access(server.address, "User:alice"))

    play(scene)


def test_users_and_rights_are_copied_to_another_broker() -> None:
    async def scene(on: Scene) -> None:
        source, target = await scripted(on, CODES), await scripted(on, CODES, "10.0.2.2")
        bob = UserInfo(username="bob", password="hidden")
        source.answer(RequestCode.AUTH_LIST_USER, lambda ask: ask.reply(body=dumps_fastjson([ALICE, bob])))
        source.answer(RequestCode.AUTH_LIST_ACL, lambda ask: ask.reply(body=dumps_fastjson([ACL])))
        for code in CODES:
            target.answer(code, lambda ask: ask.reply())
        target.answer(
            RequestCode.AUTH_GET_USER, lambda ask: ask.reply(body=dumps_fastjson(ALICE)), lambda ask: ask.reply()
        )
        assert await on.do(on.admin.copy_users(source.address, target.address)) == ("alice", "bob")
        assert [command.code for command in target.asked] == [
            RequestCode.AUTH_GET_USER,
            RequestCode.AUTH_UPDATE_USER,
            RequestCode.AUTH_GET_USER,
            RequestCode.AUTH_CREATE_USER,
        ]
        assert decode_json(target.last().body, UserInfo) == bob
        assert await on.do(on.admin.copy_users(source.address, target.address, ["carol"])) == ()
        assert await on.do(on.admin.copy_access(source.address, target.address)) == ("User:alice",)
        assert decode_json(target.last().body, AclInfo) == ACL

    play(scene)
