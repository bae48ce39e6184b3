"""Response codes to exceptions and back."""

from __future__ import annotations

import re

import pytest

from fusee import errors
from fusee.errors import (
    FieldError,
    FrameTooLargeError,
    MessageError,
    NotFoundError,
    RemoteError,
    SystemBusyError,
    TooManyRequestsError,
    TopicNotFoundError,
)
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.faults import ERRORS, REMARK_SIZE_MAX, error_for, fault_of
from fusee.wire.response_table import RESPONSES

# What Java's producer sends again, to another broker if it can.
PRODUCER_RETRIES = {
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
    ResponseCode.GO_AWAY,
}

ADDRESS = "127.0.0.1:9876"


def answer(code: int, remark: str | None = None) -> RemoteError:
    return error_for(code, remark, ADDRESS, RequestCode.GET_ROUTEINFO_BY_TOPIC)


@pytest.mark.parametrize("code", PRODUCER_RETRIES, ids=lambda code: code.name)
def test_error_is_retryable_where_java_retries_a_send(code: ResponseCode) -> None:
    assert answer(code).retryable


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.VERSION_NOT_SUPPORTED,
    ],
    ids=lambda code: code.name,
)
def test_error_is_not_retryable_where_the_same_call_would_fail_again(code: ResponseCode) -> None:
    assert not answer(code).retryable


@pytest.mark.parametrize("code", ResponseCode, ids=lambda code: code.name)
def test_every_code_survives_the_way_there_and_back(code: ResponseCode) -> None:
    error = answer(code, "why")
    assert type(error) is ERRORS.get(code, RemoteError)
    assert error.code == code
    assert error.address == ADDRESS
    assert fault_of(error).code == code


def test_every_remote_error_has_a_code() -> None:
    assert set(ERRORS.values()) == set(RemoteError.__subclasses__())


def test_error_tree_in_the_docstring_is_true() -> None:
    def below(error: type[Exception]) -> set[str]:
        return {error.__name__}.union(*(below(e) for e in error.__subclasses__() if e.__module__ == "fusee.errors"))

    drawn = re.findall(r"^[\s│├└─]*(\w+Error)\b", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(below(errors.FuseeError))


def test_error_text_names_who_what_why_and_a_way_out() -> None:
    error = answer(ResponseCode.TOPIC_NOT_EXIST, "No topic route info in name server for the topic: T")
    assert isinstance(error, TopicNotFoundError)
    assert str(error) == (
        "127.0.0.1:9876 answered GET_ROUTEINFO_BY_TOPIC with TOPIC_NOT_EXIST (17): "
        "No topic route info in name server for the topic: T; "
        "create the topic, or check its name and the name server's address"
    )


def test_error_text_when_there_is_no_remark_says_what_the_code_means() -> None:
    error = error_for(ResponseCode.QUERY_NOT_FOUND, None, "", RequestCode.GET_KV_CONFIG)
    assert isinstance(error, NotFoundError)
    assert str(error) == f"the peer answered GET_KV_CONFIG with QUERY_NOT_FOUND (22): {RESPONSES[ResponseCode(22)]}"


def test_error_when_codes_are_unknown_is_plain() -> None:
    error = error_for(777, "odd", ADDRESS, 9999)
    assert type(error) is RemoteError
    assert not error.retryable
    assert str(error) == "127.0.0.1:9876 answered request code 9999 with code 777: odd"


def test_error_text_when_remark_is_huge_is_cut() -> None:
    assert len(str(answer(ResponseCode.SYSTEM_ERROR, "x" * 1_000_000))) < REMARK_SIZE_MAX + 200


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (FieldError("QueryMessage: missing key"), ResponseCode.SYSTEM_ERROR, "QueryMessage: missing key"),
        (MessageError("topic is empty"), ResponseCode.MESSAGE_ILLEGAL, "topic is empty"),
        (FrameTooLargeError("17 MiB"), ResponseCode.SYSTEM_ERROR, "17 MiB"),
        (TooManyRequestsError("1024 in flight"), ResponseCode.SYSTEM_BUSY, "1024 in flight"),
        (SystemBusyError("later", code=ResponseCode.FLOW_CONTROL), ResponseCode.FLOW_CONTROL, "later"),
        (ZeroDivisionError("division by zero"), ResponseCode.SYSTEM_ERROR, "ZeroDivisionError: division by zero"),
    ],
)
def test_fault_of_gives_code_and_remark(error: Exception, code: ResponseCode, remark: str) -> None:
    fault = fault_of(error)
    assert fault.code == code
    assert fault.remark == remark


def test_fault_of_when_text_is_huge_cuts_the_remark() -> None:
    assert len(fault_of(ValueError("x" * 10_000)).remark) == REMARK_SIZE_MAX
