"""The exception tree: what went wrong, whose fault it is, and whether trying again can help.

FuseeError
├── ConfigError                 a setting is wrong; names the setting and where it came from
├── MessageError                a message or a name breaks a rule of the format (local, not retryable)
│   ├── RecordError             bytes that should be a stored record are not
│   ├── FilterError             a subscription's expression cannot be understood
│   └── PayloadError            a body cannot be turned into the type asked for, or back
├── ClientStateError            a client is used before it was started, or after it was closed
├── SendFailedError             every try to send failed; carries each try's error
├── DataLossError               messages that were to be read are no longer there
├── ProtocolError               bytes from the peer are not the protocol; the connection is of no more use
│   └── FrameTooLargeError      a frame or header over its limit
├── StoreError                  the store or a file of it cannot do what was asked; names the file
│   ├── StoreFullError          no space left (retryable: space may be freed)
│   ├── StoreBusyError          more is gathered than the disk takes (retryable)
│   ├── TooFewReplicasError     fewer brokers are in sync than must be (retryable)
│   ├── DivergedError           the logs of master and slave have nothing in common
│   ├── StoreCorruptError       bytes at rest are damaged; names file and position
│   └── StoreFailedError        a sync failed: what was written may be lost, nothing more is acknowledged
├── FieldError                  a header field is missing or has the wrong form
├── TransportError              the network, not the peer's answer (retryable)
│   ├── ConnectError            no connection could be made
│   ├── ConnectionLostError     it was made and is gone; the request may or may not have been served
│   ├── RequestTimeoutError     no answer in time; the request may or may not have been served
│   └── TooManyRequestsError    our own limit of requests in flight
└── RemoteError                 the peer answered with an error code; carries the code
    ├── RemoteFailureError      it failed, for a reason only it knows (retryable)
    ├── SystemBusyError         overloaded or slowing us down (retryable)
    ├── UnavailableError        it is closing, or its store takes no writes (retryable)
    ├── WrongNodeError          another node serves this (retryable)
    ├── NoPermissionError       not allowed here (retryable: another broker may allow it)
    ├── TopicNotFoundError      no such topic, or no route yet (retryable)
    ├── SubscriptionError       the broker does not know the subscription yet (retryable)
    ├── GroupNotFoundError      no such consumer group
    ├── ConsumerOfflineError    no member of the group answered
    ├── NotFoundError           nothing at that key, offset or name
    ├── InvalidRequestError     the request or its message breaks a rule
    └── NotSupportedError       the peer does not serve this request

Every error has `retryable` (whether the same call may succeed later or elsewhere), and what is known of `code` (the
peer's answer), `topic` and `address`. `fusee.admin.AdminError` gathers what failed at several servers. An error can be
copied and pickled, and so comes back whole from another process.
"""

from __future__ import annotations

from typing import Any


class FuseeError(Exception):
    """Root of everything this package raises on purpose."""

    retryable = False
    code: int | None = None
    topic: str = ""
    address: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, dict(self.__dict__))


class ConfigError(FuseeError):
    """A setting is unknown, has the wrong form, or contradicts another."""


class MessageError(FuseeError):
    """A message, property or name breaks a rule of the format."""


class RecordError(MessageError):
    """Bytes that should be a stored record are not one."""


class FilterError(MessageError):
    """A subscription's expression cannot be understood, or is over its limits."""


class PayloadError(MessageError):
    """A body cannot be turned into the type asked for, or a value into a body."""


class ClientStateError(FuseeError):
    """A client is used before it was started, or after it was closed."""


class SendFailedError(FuseeError):
    """Every try to send a message failed; `attempts` has the error of each, the last one decides what may help."""

    def __init__(self, message: str, *, attempts: tuple[Exception, ...], topic: str = "") -> None:
        super().__init__(message)
        self.attempts = attempts
        self.topic = topic
        last = attempts[-1] if attempts else None
        if isinstance(last, FuseeError):
            self.retryable = last.retryable
            self.code = last.code
            self.address = last.address


class DataLossError(FuseeError):
    """Messages that were to be read have expired or were lost; reading on would leave them out without a word."""


class StoreError(FuseeError):
    """The store, or a file of it, cannot do what was asked."""


class StoreFullError(StoreError):
    """The disk has no space left; reading goes on, and writing again when there is space."""

    retryable = True


class StoreBusyError(StoreError):
    """More is waiting to be written than the limit allows."""

    retryable = True


class TooFewReplicasError(StoreError):
    """Fewer brokers are in sync than minInSyncReplicas asks for; nothing is stored."""

    retryable = True


class DivergedError(StoreError):
    """The log of a slave and that of its master cannot be brought together without giving up what only one has."""


class StoreCorruptError(StoreError):
    """Bytes at rest are damaged."""


class StoreFailedError(StoreError):
    """A sync failed. The pages may be lost without another error, so the store stops for good."""


class ProtocolError(FuseeError):
    """Bytes from the peer are not the remoting protocol; the connection must be closed."""


class FrameTooLargeError(ProtocolError):
    """A frame, or its header, is larger than the limit of this side."""


class FieldError(FuseeError):
    """A header field is missing or has the wrong form."""


class TransportError(FuseeError):
    """The network failed before an answer came."""

    retryable = True

    def __init__(self, message: str, *, address: str = "", topic: str = "") -> None:
        super().__init__(message)
        self.address = address
        self.topic = topic


class ConnectError(TransportError):
    """No connection to the address could be made."""


class ConnectionLostError(TransportError):
    """The connection ended while the request was in flight."""


class RequestTimeoutError(TransportError):
    """No answer came before the deadline."""


class TooManyRequestsError(TransportError):
    """This side's own limit of requests in flight is reached."""


class RemoteError(FuseeError):
    """The peer answered with an error code."""

    code: int

    def __init__(self, message: str, *, code: int, address: str = "", topic: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.address = address
        self.topic = topic


class RemoteFailureError(RemoteError):
    """The peer failed while it served the request."""

    retryable = True


class SystemBusyError(RemoteError):
    """The peer is overloaded and asks for patience."""

    retryable = True


class UnavailableError(RemoteError):
    """The peer is closing, or its store takes no writes."""

    retryable = True


class WrongNodeError(RemoteError):
    """Another node serves this: a leader, another unit."""

    retryable = True


class NoPermissionError(RemoteError):
    """Permission, access control or a protected name forbids it. Java's producer tries another broker."""

    retryable = True


class TopicNotFoundError(RemoteError):
    """The peer knows no such topic, or no route to it yet."""

    retryable = True


class SubscriptionError(RemoteError):
    """The broker does not know the consumer's subscription, or an older one; a heartbeat mends it."""

    retryable = True


class GroupNotFoundError(RemoteError):
    """The broker knows no such consumer group."""


class ConsumerOfflineError(RemoteError):
    """No member of the group is connected, or it did not answer in time."""


class NotFoundError(RemoteError):
    """There is nothing at that key, offset or name."""


class InvalidRequestError(RemoteError):
    """A parameter, a filter expression or the message itself breaks a rule."""


class NotSupportedError(RemoteError):
    """The peer has no handler for this request."""


def _restored(kind: type[FuseeError], args: tuple[Any, ...], state: dict[str, Any]) -> FuseeError:
    """The error again, without its constructor: what that made of its arguments is in the state."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
