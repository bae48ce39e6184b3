"""Who may use the console: a password where it is reachable from elsewhere, sessions, and tokens against forged forms.

On the loopback address everybody on this machine may use it, without a login; bound wider it does not start without a
password. A password is given as text or as a hash (`fusee console --hash-password`), and only its scrypt hash is kept.
Failed logins are counted by address and in all; beyond a limit they are refused for a while, the right password too.

A session is a random token in a cookie that scripts cannot read and other sites cannot send (HttpOnly,
SameSite=Strict); the server keeps its hash. Each session has a second token, which every request that changes something
must carry in the form or in the header X-CSRF-Token. Programs log in by a POST to /api/session.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError

if TYPE_CHECKING:
    from fusee.clock import Clock

COOKIE: Final = "fusee_session"
SESSIONS_MAX: Final = 2_000
IDLE_SECONDS: Final = 8 * 3600.0
TRIES_MAX: Final = 5
"""Failed logins of one address in a minute."""
ALL_TRIES_MAX: Final = 60
PASSWORD_LENGTH_MIN: Final = 8
_TRIES_SECONDS: Final = 60.0
_ADDRESSES_MAX: Final = 10_000
_N, _R, _P = 2**14, 8, 1
_COST_MAX: Final = (2**20, 32, 16)
_SCHEME: Final = "scrypt"
_DAMAGED: Final = "the hash of the password is damaged; make one by `fusee console --hash-password`"


def hash_password(password: str) -> str:
    """A line for a password file. Raises ConfigError when the password is too short to protect anything."""
    if len(password) < PASSWORD_LENGTH_MIN:
        raise ConfigError(f"the password has {len(password)} characters; use at least {PASSWORD_LENGTH_MIN}")
    salt = secrets.token_bytes(16)
    return f"{_SCHEME}${_N}${_R}${_P}${salt.hex()}${_derive(password, salt, _N, _R, _P).hex()}"


class Password:
    """A password of which only the hash is kept."""

    def __init__(self, given: str) -> None:
        """`given` is the password, or what `hash_password` made of it. Raises ConfigError."""
        line = given.strip()
        if not line.startswith(_SCHEME + "$"):
            line = hash_password(line)
        try:
            _, n, r, p, salt, derived = line.split("$")
            self._cost = (int(n), int(r), int(p))
            self._salt, self._derived = bytes.fromhex(salt), bytes.fromhex(derived)
        except ValueError as error:
            raise ConfigError(_DAMAGED) from error
        if any(cost > limit for cost, limit in zip(self._cost, _COST_MAX, strict=True)) or len(self._derived) != 32:
            raise ConfigError(_DAMAGED)

    def is_right(self, password: str) -> bool:
        """Takes some tens of milliseconds on purpose; call it in a thread."""
        return hmac.compare_digest(_derive(password[:1024], self._salt, *self._cost), self._derived)


def _derive(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, dklen=32, maxmem=128 * n * r * 2)


@dataclass(slots=True)
class Session:
    """Somebody at a browser. `is_in` after a login, or where none is needed."""

    csrf: str
    is_in: bool
    last_seen: float
    message: str = ""
    """To be shown on the next page, once."""
    is_error: bool = False


class Sessions:
    """Sessions that are open, by the hash of their token."""

    def __init__(self, clock: Clock, *, needs_login: bool) -> None:
        self._clock = clock
        self.needs_login = needs_login
        self._sessions: dict[bytes, Session] = {}

    def find(self, token: str | None) -> Session | None:
        """The session of this cookie, if it is open still."""
        if not token:
            return None
        key = _key(token)
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._clock.monotonic()
        if now - session.last_seen > IDLE_SECONDS:
            del self._sessions[key]
            return None
        session.last_seen = now
        return session

    def open(self, *, is_in: bool) -> tuple[str, Session]:
        """A new session and the token for its cookie. The one that was not seen for longest makes room."""
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].last_seen)]
        token = secrets.token_urlsafe(32)
        session = Session(secrets.token_urlsafe(32), is_in or not self.needs_login, self._clock.monotonic())
        self._sessions[_key(token)] = session
        return token, session

    def close(self, token: str | None) -> None:
        """Forget a session."""
        if token:
            self._sessions.pop(_key(token), None)


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def is_right_token(session: Session, token: str | None) -> bool:
    """Whether a request that changes something carries the session's own token."""
    return token is not None and hmac.compare_digest(token.encode(), session.csrf.encode())


class Tries:
    """Failed logins of late, by address and in all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_address: dict[str, deque[float]] = {}
        self._all: deque[float] = deque()

    def wait_seconds(self, address: str) -> float:
        """How long this address must wait; 0 when it may try."""
        now = self._clock.monotonic()
        return max(
            self._wait(self._by_address.get(address), TRIES_MAX, now),
            self._wait(self._all, ALL_TRIES_MAX, now),
        )

    def failed(self, address: str) -> None:
        """Count one."""
        now = self._clock.monotonic()
        if len(self._by_address) >= _ADDRESSES_MAX:
            del self._by_address[next(iter(self._by_address))]
        self._by_address.setdefault(address, deque(maxlen=TRIES_MAX)).append(now)
        self._all.append(now)
        while len(self._all) > ALL_TRIES_MAX:
            self._all.popleft()

    def succeeded(self, address: str) -> None:
        """Forget this address."""
        self._by_address.pop(address, None)

    @staticmethod
    def _wait(times: deque[float] | None, limit: int, now: float) -> float:
        if times is None or len(times) < limit:
            return 0.0
        return max(times[-limit] + _TRIES_SECONDS - now, 0.0)
