"""The console as an ASGI application: pages, the same as JSON, changes, live events, login, metrics."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fusee.clock import Clock, SystemClock
from fusee.console import live, openapi
from fusee.console.audit import Audit
from fusee.console.auth import COOKIE, Password, Session, Sessions, Tries, is_right_token
from fusee.console.changes import CHANGES, Change, carry_out
from fusee.console.cluster_link import ClusterLink
from fusee.console.context import Asked, Context
from fusee.console.guard import BODY_MAX, Guard
from fusee.console.history import History
from fusee.console.pages import PAGES, Page
from fusee.console.rendering import Rendering
from fusee.errors import (
    ConfigError,
    FuseeError,
    GroupNotFoundError,
    MessageError,
    NotFoundError,
    TopicNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from fusee.console.config import ConsoleConfig
    from fusee.metrics import Looking

_log = logging.getLogger(__name__)

_STATIC: Final = Path(__file__).parent / "static"
_JSON: Final = "application/json"


class Console:
    """The application and its parts."""

    def __init__(
        self, config: ConsoleConfig, *, clock: Clock | None = None, looking: Looking | None = None, **options: Any
    ) -> None:
        """`looking` has metrics, for /metrics; `options` are those of `fusee.connect`. Raises ConfigError."""
        self.config = config
        clock = clock or SystemClock()
        link = ClusterLink(config.name_servers, clock=clock, **options)
        self.context = Context(
            link=link, history=History(link), audit=Audit(config.data, clock), pipelines=config.pipelines
        )
        self.context.audit.load()
        self._looking = looking
        self._password = Password(config.password) if config.needs_login else None
        self.sessions = Sessions(clock, needs_login=config.needs_login)
        self._tries = Tries(clock)
        self._streams = live.Streams()
        self._rendering = Rendering(clock)
        self._description = msgspec.json.encode(openapi.description())
        self.app: ASGIApp = Guard(
            Starlette(
                routes=self._routes(),
                lifespan=self._lifespan,
                exception_handlers={HTTPException: self._http_failed, FuseeError: self._failed},
            ),
            is_local=config.is_local,
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        sampling = asyncio.ensure_future(self.context.history.run())
        try:
            yield
        finally:
            sampling.cancel()
            with suppress(asyncio.CancelledError):
                await sampling
            await self.context.link.close()

    def _routes(self) -> list[Route | Mount]:
        routes: list[Route | Mount] = [
            Mount("/static", StaticFiles(directory=_STATIC), name="static"),
            Route("/login", self._login_page, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/api/session", self._api_session, methods=["GET", "POST"]),
            Route("/api/openapi.json", self._openapi),
            Route("/live/samples", self._live_samples),
            Route("/live/topics/{topic}", self._live_topic),
            Route("/messages", self._find_message),
            Route("/health", self._probe),
            Route("/ready", self._probe),
            Route("/metrics", self._probe),
        ]
        for change in CHANGES:
            routes.append(Route(f"/changes/{change.name}", self._form_change(change), methods=["POST"]))
            routes.append(Route(f"/api/changes/{change.name}", self._api_change(change), methods=["POST"]))
        for page in PAGES:
            routes.append(Route("/api" + (page.path if page.path != "/" else "/overview"), self._api_page(page)))
            if page.template:
                routes.append(Route(page.path, self._page(page)))
        return routes

    # Sessions

    def _session(self, request: Request, *, needs_in: bool = True) -> tuple[Session, str | None]:
        """The session of a request, and the token of a cookie to set when it is new. Raises HTTPException."""
        session = self.sessions.find(request.cookies.get(COOKIE))
        token = None
        if session is None:
            if self.sessions.needs_login and needs_in:
                raise HTTPException(401, "log in first")
            token, session = self.sessions.open(is_in=False)
        if needs_in and not session.is_in:
            raise HTTPException(401, "log in first")
        return session, token

    def _with_cookie(self, response: Response, token: str | None) -> Response:
        if token is not None:
            # Secure is left to a proxy that speaks TLS: the console itself speaks plain HTTP.
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
        return response

    async def _login_page(self, request: Request) -> Response:
        session, token = self._session(request, needs_in=False)
        if session.is_in:
            return RedirectResponse("/", 303)
        return self._with_cookie(self._html("login.html", session, request, None, title="Log in"), token)

    async def _login(self, request: Request) -> Response:
        form = await _form(request)
        session, token = self._session(request, needs_in=False)
        if not is_right_token(session, form.get("csrf")):
            raise HTTPException(403, "the form is too old; load the page again")
        try:
            new_token = await self._logged_in(request, form.get("password", ""))
        except HTTPException as error:
            session.message, session.is_error = str(error.detail), True
            page = self._html("login.html", session, request, None, title="Log in", status=error.status_code)
            page.headers.update(error.headers or {})
            return self._with_cookie(page, token)
        self.sessions.close(request.cookies.get(COOKIE))  # a token from before the login must not be one after it
        return self._with_cookie(RedirectResponse("/", 303), new_token)

    async def _logged_in(self, request: Request, password: str) -> str:
        """The token of a new session. Raises HTTPException when the password is wrong or tried too often."""
        address = request.client.host if request.client else ""
        wait = self._tries.wait_seconds(address)
        if wait:
            raise HTTPException(429, "too many tries; wait a minute", {"Retry-After": str(int(wait) + 1)})
        if self._password is not None and not await asyncio.to_thread(self._password.is_right, password):
            self._tries.failed(address)
            _log.warning("a login from %s failed", address)
            raise HTTPException(401, "the password is wrong")
        self._tries.succeeded(address)
        token, _ = self.sessions.open(is_in=True)
        return token

    async def _logout(self, request: Request) -> Response:
        session, _ = self._session(request)
        if not is_right_token(session, (await _form(request)).get("csrf")):
            raise HTTPException(403, "the form is too old; load the page again")
        self.sessions.close(request.cookies.get(COOKIE))
        response = RedirectResponse("/login" if self.sessions.needs_login else "/", 303)
        response.delete_cookie(COOKIE)
        return response

    async def _api_session(self, request: Request) -> Response:
        if request.method == "POST":
            try:
                given = msgspec.json.decode(await _body(request), type=dict[str, str])
            except msgspec.DecodeError as error:
                raise HTTPException(400, f"the body is not {{'password': '...'}}: {error}") from error
            token: str | None = await self._logged_in(request, given.get("password", ""))
            session = self.sessions.find(token)
            assert session is not None
        else:
            session, token = self._session(request)
        return self._with_cookie(_json({"csrf": session.csrf}), token)

    # Pages

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            session, token = self._session(request)
            answer = await page.ask(self.context, _asked(request))
            return self._with_cookie(self._html(page.template, session, request, answer, title=page.menu), token)

        return show

    def _api_page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def tell(request: Request) -> Response:
            _, token = self._session(request)
            return self._with_cookie(_json(await page.ask(self.context, _asked(request))), token)

        return tell

    def _html(
        self, template: str, session: Session, request: Request, answer: Any, *, title: str = "", status: int = 200
    ) -> HTMLResponse:
        message, is_error = session.message, session.is_error
        session.message, session.is_error = "", False
        content = self._rendering.page(
            template,
            answer=answer,
            title=title,
            path=request.url.path,
            asked=dict(request.query_params),
            csrf=session.csrf,
            message=message,
            is_error=is_error,
            is_in=session.is_in,
            needs_login=self.sessions.needs_login,
            name_servers=self.config.name_servers,
        )
        return HTMLResponse(content, status)

    async def _find_message(self, request: Request) -> Response:
        """Where a form leads that asks for a message by its id."""
        asked = _asked(request)
        if not asked.text("id"):
            session, token = self._session(request)
            return self._with_cookie(self._html("find.html", session, request, None, title="Messages"), token)
        self._session(request)
        return RedirectResponse(
            f"/messages/{quote(asked.text('id'), safe='')}?topic={quote(asked.text('topic'), safe='')}", 303
        )

    async def _openapi(self, request: Request) -> Response:
        self._session(request)
        return Response(self._description, media_type=_JSON)

    # Changes

    def _form_change(self, change: Change) -> Callable[[Request], Awaitable[Response]]:
        async def make(request: Request) -> Response:
            session, _ = self._session(request)
            form = await _form(request)
            if not is_right_token(session, form.pop("csrf", None)):
                raise HTTPException(403, "the form is too old, or not from here; load the page again")
            back = form.pop("back", "")
            try:
                wanted = msgspec.convert(
                    {name: value for name, value in form.items() if value != ""}, change.takes, strict=False
                )
                outcome = await carry_out(self.context, change, wanted, self._who(request))
            except (msgspec.ValidationError, FuseeError) as error:
                session.message, session.is_error = str(error), True
                return RedirectResponse(_path_within(back) or "/", 303)
            session.message = outcome.text
            return RedirectResponse(_path_within(back) or quote(change.back(wanted), safe="/"), 303)

        return make

    def _api_change(self, change: Change) -> Callable[[Request], Awaitable[Response]]:
        async def make(request: Request) -> Response:
            session, _ = self._session(request)
            if not is_right_token(session, request.headers.get("x-csrf-token")):
                raise HTTPException(403, "the header X-CSRF-Token is missing or wrong; GET /api/session gives it")
            try:
                wanted = msgspec.json.decode(await _body(request), type=change.takes)
            except msgspec.DecodeError as error:
                raise HTTPException(400, str(error)) from error
            return _json(await carry_out(self.context, change, wanted, self._who(request)))

        return make

    def _who(self, request: Request) -> str:
        address = request.client.host if request.client else "unknown"
        return f"admin from {address}" if self.sessions.needs_login else f"anybody at {address}"

    # Live

    async def _live_samples(self, request: Request) -> Response:
        return self._stream(request, live.samples(self.context, self._streams))

    async def _live_topic(self, request: Request) -> Response:
        return self._stream(request, live.tail(self.context, _asked(request), self._streams))

    def _stream(self, request: Request, events: AsyncIterator[bytes]) -> Response:
        self._session(request)
        if self._streams.is_full:
            raise HTTPException(503, "too many live pages are open; close some")
        return StreamingResponse(events, media_type="text/event-stream")

    # Probes

    async def _probe(self, request: Request) -> Response:
        from fusee.metrics.exposition import answer

        path = request.url.path
        if self._looking is None:
            if path == "/metrics":
                raise HTTPException(404, "this console runs beside no server; brokers serve their own metrics")
            return Response(b"ok\n", media_type="text/plain")
        found = await asyncio.to_thread(answer, self._looking, path, request.headers.get("accept", ""))
        assert found is not None
        status, content_type, content = found
        return Response(content, status.value, {"Content-Type": content_type})

    # Failures

    async def _http_failed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if _is_api(request):
            return _json({"error": error.detail}, error.status_code, dict(error.headers or {}))
        if error.status_code == 401:
            return RedirectResponse("/login", 303)
        return self._sorry(request, error.status_code, str(error.detail))

    async def _failed(self, request: Request, error: Exception) -> Response:
        status = 502
        if isinstance(error, (GroupNotFoundError, NotFoundError, TopicNotFoundError)):
            status = 404
        elif isinstance(error, (ConfigError, MessageError)):
            status = 400
        if _is_api(request):
            return _json({"error": str(error)}, status)
        return self._sorry(request, status, str(error))

    def _sorry(self, request: Request, status: int, text: str) -> Response:
        session = self.sessions.find(request.cookies.get(COOKIE)) or Session("", False, 0.0)
        return self._html("error.html", session, request, {"status": status, "text": text}, status=status)


def _asked(request: Request) -> Asked:
    return Asked({**request.query_params, **{name: str(value) for name, value in request.path_params.items()}})


def _is_api(request: Request) -> bool:
    return request.url.path.startswith(("/api/", "/live/"))


def _path_within(path: str) -> str:
    """The path if it leads to a page of this console."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and "\\" not in path else ""


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type=_JSON)


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_MAX:
            raise HTTPException(413, f"the request is larger than {BODY_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


async def _form(request: Request) -> dict[str, str]:
    body = await _body(request)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError as error:
        raise HTTPException(400, f"this is not a form: {error}") from error
