"""Errors leave the process they were raised in without losing what they carry."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import fusee
from fusee import errors
from fusee.errors import ConnectError, FuseeError, RemoteError, SendFailedError, TopicNotFoundError

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, FuseeError)]


def example(kind: type[FuseeError]) -> FuseeError:
    if issubclass(kind, RemoteError):
        return kind("no", code=17, address="10.0.0.1:10911", topic="orders")
    if issubclass(kind, SendFailedError):
        return kind("in vain", attempts=(ConnectError("no way", address="10.0.0.1:10911"),), topic="orders")
    error = kind("no")
    error.topic, error.address = "orders", "10.0.0.1:10911"
    return error


@pytest.mark.parametrize("kind", KINDS)
def test_error_when_it_crosses_processes_is_whole(kind: type[FuseeError]) -> None:
    error = example(kind)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert (again.code, again.topic, again.address, again.retryable) == (
            error.code,
            error.topic,
            error.address,
            error.retryable,
        )


def test_failed_send_when_it_crosses_processes_keeps_each_try() -> None:
    missing = TopicNotFoundError("no such topic", code=17, topic="orders")
    again = pickle.loads(pickle.dumps(SendFailedError("twice in vain", attempts=(missing, ConnectError("gone")))))
    assert [type(each) for each in again.attempts] == [TopicNotFoundError, ConnectError]
    assert again.attempts[0].code == 17


def test_error_of_the_admin_client_when_it_crosses_processes_keeps_the_causes() -> None:
    error = fusee.AdminError("a server failed", errors=(ConnectError("no way", address="10.0.0.1:10911"),))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.retryable) == (str(error), error.retryable)
    assert [str(each) for each in again.errors] == ["no way"]
