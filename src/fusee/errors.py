"""The exception tree: what went wrong, whose fault it is, and whether trying again can help.

FuseeError
├── ConfigError                 a setting is wrong; names the setting and where it came from
├── MessageError                a message or a name breaks a rule of the format (local, not retryable)
│   └── RecordError             bytes that should be a stored record are not
├── ProtocolError               bytes from the peer are not the protocol; the connection is of no more use
│   └── FrameTooLargeError      a frame or header over its limit
├── FieldError                  a header field is missing or has the wrong form
└── TransportError              the network, not the peer's answer (retryable)
    ├── ConnectError            no connection could be made
    ├── ConnectionLostError     it was made and is gone; the request may or may not have been served
    ├── RequestTimeoutError     no answer in time; the request may or may not have been served
    └── TooManyRequestsError    our own limit of requests in flight
RemoteError                     the peer answered with an error code (a FuseeError too); carries code and remark

Every class has `retryable`: whether the same call may succeed later or elsewhere.
"""

from __future__ import annotations


class FuseeError(Exception):
    """Root of everything this package raises on purpose."""

    retryable = False


class ConfigError(FuseeError):
    """A setting is unknown, has the wrong form, or contradicts another."""


class MessageError(FuseeError):
    """A message, property or name breaks a rule of the format."""


class RecordError(MessageError):
    """Bytes that should be a stored record are not one."""


class ProtocolError(FuseeError):
    """Bytes from the peer are not the remoting protocol; the connection must be closed."""


class FrameTooLargeError(ProtocolError):
    """A frame, or its header, is larger than the limit of this side."""


class FieldError(FuseeError):
    """A header field is missing or has the wrong form."""


class TransportError(FuseeError):
    """The network failed before an answer came."""

    retryable = True

    def __init__(self, message: str, *, address: str = "") -> None:
        super().__init__(message)
        self.address = address


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

    def __init__(self, message: str, *, code: int, address: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.address = address
