"""The console in a real browser, at the width of a desk and of a phone: shown, live, used, nothing refused by CSP.

With FUSEE_SCREENSHOTS=DIR the pages are kept there as pictures; docs/screenshots has them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.wait import WebDriverWait

from fusee.admin.stream_groups import StreamMark
from fusee.clock import SystemClock
from tests.console.world import Browser, World, browsing, checkpoint, furnished

CHROMIUM = os.environ.get("FUSEE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
SHOTS = os.environ.get("FUSEE_SCREENSHOTS")

pytestmark = [
    pytest.mark.skipif(
        (CHROMIUM is None or DRIVER is None) and "FUSEE_BROWSER" not in os.environ,
        reason="no chromium with its driver here; `make browser` installs them",
    ),
    pytest.mark.xdist_group("browser"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SIZES = {"desk": (1280, 900), "phone": (390, 844)}
PAGES = {
    "overview": "/",
    "cluster": "/cluster",
    "topics": "/topics",
    "topic": "/topics/orders",
    "messages": "/topics/orders/messages",
    "groups": "/groups",
    "group": "/groups/billing",
    "reset": "/groups/billing/reset?topic=orders&to=first",
    "life": "",
    "find": "/messages",
    "dead-letters": "/dead-letters",
    "dead-letter": "/dead-letters/billing",
    "pending": "/pending",
    "pipelines": "/pipelines",
    "configuration": "/configuration?search=queue",
    "audit": "/audit",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Browser]]:
    folder = tmp_path_factory.mktemp("streams")
    with furnished() as world:
        checkpoint(folder / "orders-to-parquet", "embedded")
        with browsing(world.name_server, pipelines=folder) as browser:
            browser.change("send", topic="payments", body="by the console")
            world.mq.admin.mark_stream_group("billing", StreamMark(engine="spark", since_ms=SystemClock().time_ms()))
            yield world, browser


@pytest.fixture(scope="module", params=list(SIZES))
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
        *("--force-color-profile=srgb", f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"),
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(DRIVER))
    width, height = SIZES[request.param]
    found.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": request.param == "phone"},
    )
    found.set_page_load_timeout(60)
    found.size_name = request.param  # type: ignore[attr-defined]
    try:
        yield found
    finally:
        found.quit()


def url(browser: Browser, path: str) -> str:
    return str(browser.client.base_url).rstrip("/") + path


def keep(driver: Any, name: str) -> None:
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        driver.save_screenshot(str(Path(SHOTS) / f"{name}-{driver.size_name}.png"))


def wait(driver: Any, condition: Any, seconds: float = 30) -> Any:
    return WebDriverWait(driver, seconds).until(condition)


def check_quiet(driver: Any) -> None:
    """Nothing failed to load, nothing was refused by the content security policy, no script broke."""
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []


@pytest.mark.parametrize("name", list(PAGES))
def test_page_is_shown_whole_at_this_width(driver: Any, place: tuple[World, Browser], name: str) -> None:
    world, browser = place
    path = PAGES[name] or f"/messages/{world.sent[0]}?topic=orders"
    driver.get(url(browser, path))
    wait(driver, expected_conditions.presence_of_element_located((By.TAG_NAME, "h1")))
    if name == "topics":
        wait(driver, expected_conditions.presence_of_element_located((By.CSS_SELECTOR, "[data-filled=yes]")))
        count = driver.find_element(By.CSS_SELECTOR, "[data-topic=orders] [data-count]").text
        assert count == "12"
    if name == "pipelines":
        row = driver.find_element(By.XPATH, "//td[a='billing']/..").text
        assert "orders" in row
        assert row.endswith("spark")
    if name in ("overview", "group"):
        wait(driver, expected_conditions.presence_of_element_located((By.CSS_SELECTOR, ".chart svg")))
    width, inner = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= inner, "a page is never wider than its window; tables scroll inside"
    assert driver.find_element(By.TAG_NAME, "footer").is_displayed()
    keep(driver, name)
    check_quiet(driver)


def test_live_tail_shows_a_message_as_it_comes(driver: Any, place: tuple[World, Browser]) -> None:
    world, browser = place
    driver.get(url(browser, "/topics/payments/messages"))
    driver.find_element(By.CSS_SELECTOR, "[data-tail]").click()
    wait(driver, expected_conditions.presence_of_element_located((By.CSS_SELECTOR, "[data-connected=yes]")))
    rows = (By.CSS_SELECTOR, "[data-tail-rows] tr")
    text = f"live at the {driver.size_name}"

    def arrived(_: Any) -> Any:
        world.mq.send("payments", text.encode())  # again, until the tail has taken its place at the end
        return any(text in row.text for row in driver.find_elements(*rows))

    WebDriverWait(driver, 60, poll_frequency=1).until(arrived)
    keep(driver, "tail")
    driver.find_element(By.CSS_SELECTOR, "[data-tail]").click()
    assert "stopped" in driver.find_element(By.CSS_SELECTOR, "[data-tail-state]").text
    check_quiet(driver)


def test_overview_is_live(driver: Any, place: tuple[World, Browser]) -> None:
    _, browser = place
    driver.get(url(browser, "/"))
    wait(driver, expected_conditions.presence_of_element_located((By.CSS_SELECTOR, ".chart svg")))
    before = driver.execute_script("return window.charts.all()[0].points.length")
    wait(driver, lambda d: d.execute_script("return window.charts.all()[0].points.length") > before)
    keep(driver, "overview")


def test_a_group_is_moved_after_a_preview_and_put_back(driver: Any, place: tuple[World, Browser]) -> None:
    _, browser = place
    driver.get(url(browser, "/groups/billing"))
    field = driver.find_element(By.NAME, "to")
    field.send_keys("last")
    field.submit()
    wait(driver, expected_conditions.text_to_be_present_in_element((By.TAG_NAME, "main"), "Nothing is changed yet"))
    driver.find_element(By.XPATH, "//button[text()='Move it']").click()
    wait(driver, expected_conditions.alert_is_present())
    driver.switch_to.alert.accept()
    wait(
        driver, expected_conditions.text_to_be_present_in_element((By.CSS_SELECTOR, ".note.done"), "goes on elsewhere")
    )
    keep(driver, "moved")
    driver.get(url(browser, "/audit"))
    driver.find_element(By.XPATH, "//button[text()='undo']").click()
    wait(driver, expected_conditions.alert_is_present())
    driver.switch_to.alert.accept()
    wait(driver, expected_conditions.text_to_be_present_in_element((By.CSS_SELECTOR, ".note.done"), "was put back"))
    keep(driver, "audit")
    check_quiet(driver)


def test_the_menu_is_reached_at_any_width(driver: Any, place: tuple[World, Browser]) -> None:
    _, browser = place
    driver.get(url(browser, "/"))
    link = driver.find_element(By.LINK_TEXT, "Topics") if driver.size_name == "desk" else None
    if link is None:
        driver.find_element(By.CSS_SELECTOR, ".menu-button").click()
        link = driver.find_element(By.LINK_TEXT, "Topics")
    link.click()
    wait(driver, expected_conditions.text_to_be_present_in_element((By.TAG_NAME, "h1"), "Topics"))


def test_login_in_a_browser(driver: Any) -> None:
    with browsing("127.0.0.1:1", password="correct horse") as browser:
        driver.get(url(browser, "/topics"))
        wait(driver, expected_conditions.presence_of_element_located((By.NAME, "password"))).send_keys("wrong one")
        keep(driver, "login")
        driver.find_element(By.NAME, "password").submit()
        wait(driver, expected_conditions.text_to_be_present_in_element((By.CSS_SELECTOR, ".note"), "wrong"))
        driver.find_element(By.NAME, "password").send_keys("correct horse")
        driver.find_element(By.NAME, "password").submit()
        wait(driver, expected_conditions.text_to_be_present_in_element((By.TAG_NAME, "h1"), "Overview"))
        keep(driver, "unknown")
        assert driver.find_elements(By.CSS_SELECTOR, ".unknown, .unknown-note")
