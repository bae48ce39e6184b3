"""The broker on one page: which lane each request code goes through, and what may be unfinished in it.

The limits are the reference's queue sizes. A handler that answers at once leaves its lane at once; a lane fills only
with what waits: sends for the disk, pulls for messages, requests passed on for a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fusee.transport.router import Handler, Lane, Router

SEND: Final = "send"
PULL: Final = "pull"
CLIENT: Final = "client"
TRANSACTION: Final = "transaction"
QUERY: Final = "query"
ADMIN: Final = "admin"

_LANES: Final[Mapping[RequestCode, str]] = {
    RequestCode.SEND_MESSAGE: SEND,
    RequestCode.SEND_MESSAGE_V2: SEND,
    RequestCode.SEND_BATCH_MESSAGE: SEND,
    RequestCode.CONSUMER_SEND_MSG_BACK: SEND,
    RequestCode.SEND_REPLY_MESSAGE: SEND,
    RequestCode.SEND_REPLY_MESSAGE_V2: SEND,
    RequestCode.PULL_MESSAGE: PULL,
    RequestCode.LITE_PULL_MESSAGE: PULL,
    RequestCode.PEEK_MESSAGE: PULL,
    RequestCode.BULK_READ: PULL,
    RequestCode.END_TRANSACTION: TRANSACTION,
    RequestCode.STAGE_MESSAGES: SEND,
    RequestCode.SEND_HANDED_BATCH: SEND,
    RequestCode.COMMIT_STAGED_BATCH: TRANSACTION,
    RequestCode.DROP_STAGED_BATCH: TRANSACTION,
    RequestCode.QUERY_MESSAGE: QUERY,
    RequestCode.VIEW_MESSAGE_BY_ID: QUERY,
    RequestCode.HEART_BEAT: CLIENT,
    RequestCode.UNREGISTER_CLIENT: CLIENT,
    RequestCode.CHECK_CLIENT_CONFIG: CLIENT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: CLIENT,
    RequestCode.QUERY_CONSUMER_OFFSET: CLIENT,
    RequestCode.UPDATE_CONSUMER_OFFSET: CLIENT,
}
"""Every code that is not here goes through the lane of administration."""

# The fast port is there so that a send never stands behind a pull.
_NOT_ON_FAST_PORT: Final = frozenset(
    {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.BULK_READ}
)


def make_lanes(router: Router, *, sends_max: int, pulls_max: int) -> dict[str, Lane]:
    """The lanes of a broker."""
    limits = {
        SEND: sends_max,
        PULL: pulls_max,
        TRANSACTION: 100_000,
        QUERY: 20_000,
        CLIENT: 1_000_000,
        ADMIN: 10_000,
    }
    return {name: router.lane(name, limit) for name, limit in limits.items()}


def add_routes(
    router: Router, fast_router: Router, lanes: Mapping[str, Lane], handlers: Mapping[RequestCode, Handler]
) -> None:
    """Serve these codes, on both doors where that is right; what is unfinished counts for both."""
    fast_router.lanes.update(lanes)
    for code, handler in handlers.items():
        lane = lanes[_LANES.get(code, ADMIN)]
        router.add(code, handler, lane)
        if code not in _NOT_ON_FAST_PORT:
            fast_router.add(code, handler, lane)
