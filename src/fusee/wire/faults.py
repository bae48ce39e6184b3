"""Between response codes and exceptions, both ways, in one table.

A caller turns an answer that is not a success into the exception that says what to do (`error_for`); a server
turns whatever a handler raised into a code and a remark (`fault_of`). Codes that are answers rather than errors
(nothing new to pull, stored but not flushed) are for the caller to look at first: here they are errors too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fusee.errors import (
    ConsumerOfflineError,
    FuseeError,
    GroupNotFoundError,
    InvalidRequestError,
    MessageError,
    NoPermissionError,
    NotFoundError,
    NotSupportedError,
    RemoteError,
    RemoteFailureError,
    SubscriptionError,
    SystemBusyError,
    TooManyRequestsError,
    TopicNotFoundError,
    UnavailableError,
    WrongNodeError,
)
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.response_table import RESPONSES

REMARK_SIZE_MAX: Final = 1024

ERRORS: Final[dict[ResponseCode, type[RemoteError]]] = {
    ResponseCode.SYSTEM_ERROR: RemoteFailureError,
    ResponseCode.SYSTEM_BUSY: SystemBusyError,
    ResponseCode.FLOW_CONTROL: SystemBusyError,
    ResponseCode.POLLING_FULL: SystemBusyError,
    ResponseCode.SERVICE_NOT_AVAILABLE: UnavailableError,
    ResponseCode.SLAVE_NOT_AVAILABLE: UnavailableError,
    ResponseCode.GO_AWAY: UnavailableError,
    ResponseCode.BROKER_DISPATCH_NOT_COMPLETE: UnavailableError,
    ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE: UnavailableError,
    ResponseCode.NO_BUYER_ID: WrongNodeError,
    ResponseCode.NOT_IN_CURRENT_UNIT: WrongNodeError,
    ResponseCode.NOT_LEADER_FOR_QUEUE: WrongNodeError,
    ResponseCode.CONTROLLER_NOT_LEADER: WrongNodeError,
    ResponseCode.NO_PERMISSION: NoPermissionError,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotFoundError,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: SubscriptionError,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: SubscriptionError,
    ResponseCode.FILTER_DATA_NOT_EXIST: SubscriptionError,
    ResponseCode.FILTER_DATA_NOT_LATEST: SubscriptionError,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotFoundError,
    ResponseCode.CONSUMER_NOT_ONLINE: ConsumerOfflineError,
    ResponseCode.CONSUME_MSG_TIMEOUT: ConsumerOfflineError,
    ResponseCode.QUERY_NOT_FOUND: NotFoundError,
    ResponseCode.NO_MESSAGE: NotFoundError,
    ResponseCode.BROKER_NOT_EXIST: NotFoundError,
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST: NotFoundError,
    ResponseCode.USER_NOT_EXIST: NotFoundError,
    ResponseCode.POLICY_NOT_EXIST: NotFoundError,
    ResponseCode.MESSAGE_ILLEGAL: InvalidRequestError,
    ResponseCode.INVALID_PARAMETER: InvalidRequestError,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: InvalidRequestError,
    ResponseCode.ILLEGAL_OPERATION: InvalidRequestError,
    ResponseCode.BROADCAST_CONSUMPTION: InvalidRequestError,
    ResponseCode.TOPIC_EXIST_ALREADY: InvalidRequestError,
    ResponseCode.CONTROLLER_INVALID_REQUEST: InvalidRequestError,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: NotSupportedError,
    ResponseCode.VERSION_NOT_SUPPORTED: NotSupportedError,
}
"""The exception of each code; every other code is a plain RemoteError, not retryable."""

_FIXES: Final[dict[ResponseCode, str]] = {
    ResponseCode.SYSTEM_BUSY: "try again later, or send less at once",
    ResponseCode.FLOW_CONTROL: "try again later, or send less at once",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "check that the address is of the right kind of server and port",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or check its name and the name server's address",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group, or check its name",
    ResponseCode.NO_PERMISSION: "check the permission of topic and broker, and the credentials",
    ResponseCode.SERVICE_NOT_AVAILABLE: "check disk space and role of the broker",
    ResponseCode.GO_AWAY: "connect again",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """An exception as the peer will see it."""

    code: int
    remark: str


def error_for(code: int, remark: str | None, address: str, request_code: int) -> RemoteError:
    """The exception for this answer; its text says who answered what to which request, and what may help."""
    said = (remark or "").strip()[:REMARK_SIZE_MAX].rstrip(".")
    try:
        known = ResponseCode(code)
    except ValueError:
        return RemoteError(_text(f"code {code}", said, "", address, request_code), code=code, address=address)
    said = said or RESPONSES[known]
    message = _text(f"{known.name} ({code})", said, _FIXES.get(known, ""), address, request_code)
    return ERRORS.get(known, RemoteError)(message, code=code, address=address)


def fault_of(error: BaseException) -> Fault:
    """The code and remark by which the peer learns of this error."""
    if isinstance(error, RemoteError):
        return Fault(error.code, str(error)[:REMARK_SIZE_MAX])
    code = ResponseCode.SYSTEM_ERROR
    if isinstance(error, MessageError):
        code = ResponseCode.MESSAGE_ILLEGAL
    elif isinstance(error, TooManyRequestsError):
        code = ResponseCode.SYSTEM_BUSY
    remark = str(error) if isinstance(error, FuseeError) else f"{type(error).__name__}: {error}"
    return Fault(code, remark[:REMARK_SIZE_MAX])


def _text(code: str, said: str, fix: str, address: str, request_code: int) -> str:
    try:
        request = RequestCode(request_code).name
    except ValueError:
        request = f"request code {request_code}"
    parts = [f"{address or 'the peer'} answered {request} with {code}"]
    parts += [part for part in (said, fix) if part]
    return ": ".join(parts[:2]) + (f"; {parts[2]}" if len(parts) > 2 else "")
