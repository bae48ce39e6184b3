"""What every answer and every request must satisfy: headers for browsers, names of this host, bounds, and a session.

Scripts, styles and pictures come from this server alone, nothing is inline, nothing may frame it. A request that
names another host is refused where the console is local: a page of another site whose name leads here would be one.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_MAX: Final = 8 * 1024 * 1024

SECURITY: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, *, is_local: bool) -> None:
        self._app = app
        self._is_local = is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    given[name] = value
                given.setdefault("Cache-Control", "no-store")
            await send(message)

        if self._is_local and not _is_local_name(headers.get("host", "")):
            refusal = PlainTextResponse("this console answers to 127.0.0.1 and localhost only\n", 421)
            await refusal(scope, receive, send_with_headers)
            return
        if _is_from_elsewhere(scope, headers):
            refusal = PlainTextResponse("a request from another site changes nothing here\n", 403)
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def _is_local_name(host: str) -> bool:
    """Whether a Host header names this machine's own address."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _is_from_elsewhere(scope: Scope, headers: Headers) -> bool:
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return False
    return headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
