"""Hooks see what happens and cannot disturb it."""

from __future__ import annotations

import logging

import pytest

from fusee.client import hooks
from fusee.client.hooks import (
    AccessChannel,
    ConsumeContext,
    ConsumeHook,
    EndTransactionContext,
    EndTransactionHook,
    SendContext,
    SendHook,
    TransactionState,
)
from fusee.message.model import Message, MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)
MESSAGE = Message("orders", b"body")


class _Watcher:
    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    def before_send(self, context: SendContext) -> None:
        context.notes[self] = "remembered"
        self.seen.append(("before send", context))

    def after_send(self, context: SendContext) -> None:
        self.seen.append(("after send", context.notes[self]))

    def before_consume(self, context: ConsumeContext) -> None:
        self.seen.append(("before consume", context))

    def after_consume(self, context: ConsumeContext) -> None:
        self.seen.append(("after consume", context))

    def end_transaction(self, context: EndTransactionContext) -> None:
        self.seen.append(("end", context))


class _Broken:
    def _fail(self, context: object) -> None:
        raise RuntimeError("hook is broken")

    before_send = after_send = before_consume = after_consume = end_transaction = _fail


def _send_context() -> SendContext:
    return SendContext("producers", "orders", MESSAGE, QUEUE, "10.0.0.1:10911")


def _consume_context() -> ConsumeContext:
    return ConsumeContext("consumers", QUEUE, ())


def _end_context() -> EndTransactionContext:
    return EndTransactionContext("producers", MESSAGE, "10.0.0.1:10911", "ID", "ID", TransactionState.COMMIT)


def test_hooks_are_told_in_order_and_share_the_context() -> None:
    first, second = _Watcher(), _Watcher()
    context = _send_context()
    hooks.before_send((first, second), context)
    hooks.after_send((first, second), context)
    for watcher in (first, second):
        assert watcher.seen == [("before send", context), ("after send", "remembered")]
    consumed, ended = _consume_context(), _end_context()
    hooks.before_consume((first,), consumed)
    hooks.after_consume((first,), consumed)
    hooks.end_transaction((first,), ended)
    assert first.seen[2:] == [("before consume", consumed), ("after consume", consumed), ("end", ended)]


@pytest.mark.parametrize("tell", ["before_send", "after_send", "before_consume", "after_consume", "end_transaction"])
def test_hook_that_raises_is_logged_and_the_next_is_told(tell: str, caplog: pytest.LogCaptureFixture) -> None:
    watcher = _Watcher()
    context = _send_context() if "send" in tell else _consume_context() if "consume" in tell else _end_context()
    if isinstance(context, SendContext):
        context.notes[watcher] = "remembered"
    with caplog.at_level(logging.ERROR, hooks.__name__):
        getattr(hooks, tell)((_Broken(), watcher), context)
    assert len(watcher.seen) == 1
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info and record.exc_info[1]] == [
        ("hook is broken",)
    ]
    assert "_Broken" in caplog.text


def test_protocols_tell_hooks_apart() -> None:
    watcher = _Watcher()
    assert isinstance(watcher, SendHook)
    assert isinstance(watcher, ConsumeHook)
    assert isinstance(watcher, EndTransactionHook)
    assert not isinstance(object(), SendHook)


def test_names_are_those_of_the_reference() -> None:
    assert [state.value for state in TransactionState] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]
    assert [(kind.name, int(kind)) for kind in hooks.MessageType] == [
        ("NORMAL", 0),
        ("HALF", 1),
        ("COMMIT", 2),
        ("DELAY", 3),
        ("ORDER", 4),
    ]
    assert [kind.name for kind in hooks.ConsumeReturn] == ["SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED"]
    assert AccessChannel("CLOUD") is AccessChannel.CLOUD
