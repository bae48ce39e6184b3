"""Who may use a console: passwords, sessions, tries, and what browsers are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusee.clock import ManualClock
from fusee.console.auth import ALL_TRIES_MAX, IDLE_SECONDS, TRIES_MAX, Password, Sessions, Tries, hash_password
from fusee.console.config import ConsoleConfig, find_password
from fusee.errors import ConfigError
from tests.console.world import Browser, browsing

PASSWORD = "correct horse"


def log_in(browser: Browser, password: str) -> int:
    return browser.client.post("/api/session", json={"password": password}).status_code


def test_a_hash_is_as_good_as_the_password_and_hides_it() -> None:
    line = hash_password(PASSWORD)
    assert PASSWORD not in line
    for given in (PASSWORD, line, f"{line}\n"):
        password = Password(given)
        assert password.is_right(PASSWORD)
        assert not password.is_right("wrong")
    with pytest.raises(ConfigError, match="at least 8"):
        Password("short")
    for damaged in ("scrypt$1", line[:-2], "scrypt$99999999$8$1$00$" + "00" * 32):
        with pytest.raises(ConfigError, match="damaged"):
            Password(damaged)


def test_wider_than_this_machine_needs_a_password(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "10.0.0.1", "::"):
        with pytest.raises(ConfigError, match="needs a password"):
            ConsoleConfig(name_servers="x", host=host)
        ConsoleConfig(name_servers="x", host=host, password=PASSWORD)
    for host in ("127.0.0.1", "127.0.0.9", "localhost", "::1"):
        assert ConsoleConfig(name_servers="x", host=host).is_local
    file = tmp_path / "password"
    file.write_text("from a file\n")
    assert find_password(file, {}) == "from a file"
    assert find_password(None, {"FUSEE_CONSOLE_PASSWORD_FILE": str(file)}) == "from a file"
    assert find_password(None, {"FUSEE_CONSOLE_PASSWORD": "from outside"}) == "from outside"
    assert find_password(None, {}) == ""
    with pytest.raises(ConfigError, match="cannot be read"):
        find_password(tmp_path / "missing", {})


def test_nothing_is_shown_or_changed_before_the_login() -> None:
    with browsing("127.0.0.1:1", password=PASSWORD) as browser:
        for path in ("/", "/topics", "/audit", "/messages"):
            answer = browser.client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        for path in ("/api/overview", "/api/openapi.json", "/live/samples", "/live/topics/x", "/api/session"):
            assert browser.client.get(path).status_code == 401
        page = browser.client.get("/login")
        assert "password" in page.text
        assert browser.client.get("/api/overview").status_code == 401, "the session of the login page is not in"
        assert browser.client.post("/api/changes/undo", json={"number": 1}).status_code == 401
        assert browser.client.get("/health").status_code == 200


def test_the_form_logs_in_with_a_new_session_and_out_again() -> None:
    with browsing("127.0.0.1:1", password=PASSWORD) as browser:
        page = browser.client.get("/login")
        before = browser.client.cookies["fusee_session"]
        token = page.text.split('name="csrf" content="')[1].split('"')[0]
        assert browser.client.post("/login", data={"password": PASSWORD}).status_code == 403
        wrong = browser.client.post("/login", data={"csrf": token, "password": "wrong one"})
        assert wrong.status_code == 401
        assert "the password is wrong" in wrong.text
        right = browser.client.post("/login", data={"csrf": token, "password": PASSWORD})
        assert right.status_code == 303
        cookie = right.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert browser.client.cookies["fusee_session"] != before
        assert browser.client.get("/api/overview").status_code == 200
        browser.client.post("/logout", data={"csrf": browser.csrf})
        browser.client.cookies.clear()
        assert browser.client.get("/api/overview").status_code == 401


def test_too_many_tries_are_refused_the_right_one_too() -> None:
    with browsing("127.0.0.1:1", password=PASSWORD) as browser:
        for _ in range(TRIES_MAX):
            assert log_in(browser, "wrong one") == 401
        answer = browser.client.post("/api/session", json={"password": PASSWORD})
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 61


def test_tries_are_forgotten_in_time_and_counted_in_all() -> None:
    clock = ManualClock()
    tries = Tries(clock)
    for _ in range(TRIES_MAX):
        assert tries.wait_seconds("a") == 0
        tries.failed("a")
    assert tries.wait_seconds("a") > 0
    assert tries.wait_seconds("b") == 0
    clock.advance(61)
    assert tries.wait_seconds("a") == 0
    for number in range(ALL_TRIES_MAX):
        tries.failed(f"address-{number}")
    assert tries.wait_seconds("another") > 0


def test_a_session_that_is_idle_is_over() -> None:
    clock = ManualClock()
    sessions = Sessions(clock, needs_login=True)
    token, _ = sessions.open(is_in=True)
    clock.advance(IDLE_SECONDS - 1)
    assert sessions.find(token) is not None
    clock.advance(IDLE_SECONDS + 1)
    assert sessions.find(token) is None


def test_every_answer_has_the_headers_and_other_names_are_refused() -> None:
    with browsing("127.0.0.1:1") as browser:
        for path in ("/", "/static/console.js", "/api/overview", "/nonsense", "/health"):
            headers = browser.client.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe-inline" not in policy
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
        for name in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example"):
            assert browser.client.get("/", headers={"Host": name}).status_code == 421
        for name in ("localhost:8080", "127.0.0.1", "[::1]:8080"):
            assert browser.client.get("/", headers={"Host": name}).status_code == 200


def test_a_request_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusee.console.app.BODY_MAX", 1_000)
    with browsing("127.0.0.1:1") as browser:
        answer = browser.client.post("/api/changes/send", content=b"x" * 2_000, headers={"X-CSRF-Token": browser.csrf})
        assert answer.status_code == 413
