# SPDX-License-Identifier: Apache-2.0
"""Chromium as a person, or a screen reader, uses it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import (
    JavascriptException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

PATIENCE = 180
"""Seconds; a busy machine emulates slowly."""
SIZE = (1280, 1000)
OPERABLE = {"button", "link", "textbox", "combobox", "spinbutton", "checkbox", "searchbox", "Date"}
"""Roles of what a person operates, as Chromium's accessibility tree calls them."""
SCROLLS = """\
const bars = (element, more, overflow) =>
    more > 1 && (element === document.documentElement || ["auto", "scroll"].includes(overflow));
return [...document.querySelectorAll("*")].filter(element => {
    const style = getComputedStyle(element);
    return bars(element, element.scrollHeight - element.clientHeight, style.overflowY)
        || bars(element, element.scrollWidth - element.clientWidth, style.overflowX);
}).map(element => element.outerHTML.slice(0, 100));
"""


class Browser:
    """One window."""

    def __init__(self, base: str, profile: Path) -> None:
        self._base, self._profile = base, profile
        self._sessions = 0
        self.driver = self._started()

    def _started(self) -> webdriver.Chrome:
        """Start Chromium with a profile that nobody has used."""
        self._sessions += 1
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for word in (
            "--headless=new",
            "--no-sandbox",  # root may not have one; the pages are this test's own
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--force-prefers-reduced-motion",
            f"--window-size={SIZE[0]},{SIZE[1]}",
            f"--user-data-dir={self._profile / str(self._sessions)}",
        ):
            options.add_argument(word)
        driver = webdriver.Chrome(
            options=options, service=webdriver.ChromeService("/usr/bin/chromedriver")
        )
        driver.set_page_load_timeout(PATIENCE)
        return driver

    def close(self) -> None:
        self.driver.quit()

    def login(self, user: str, password: str) -> None:
        """Log in, in a Chromium of its own.

        Horizon sends the session's cookie with every answer; a late one to the former user would bring it back.
        """
        self.driver.quit()
        self.driver = self._started()
        self.driver.get(f"{self._base}/auth/login/")
        self.fill("username", user)
        self.fill("password", password)
        self.find("#loginBtn").click()
        self.until(lambda: "/auth/login" not in self.driver.current_url)

    def go(self, path: str) -> None:
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.get(self._base + path)

    @property
    def path(self) -> str:
        return self.driver.current_url.removeprefix(self._base)

    def find(self, selector: str, within: WebElement | None = None) -> WebElement:
        """Return the element, once it is there and visible."""
        return self.until(
            lambda: next((e for e in self.all(selector, within) if e.is_displayed()), None)
        )

    def all(self, selector: str, within: WebElement | None = None) -> list[WebElement]:
        """Return the elements that are there now."""
        return (within or self.driver).find_elements(By.CSS_SELECTOR, selector)

    def link(self, text: str) -> WebElement:
        """Return the visible link or button with this text."""

        def named() -> WebElement | None:
            said = f"normalize-space(.)='{text}'"
            found = self.driver.find_elements(
                By.XPATH,
                f"//a[{said}] | //button[{said}] | //summary[{said}] | //input[@type='submit' and @value='{text}']",
            )
            return next((each for each in found if each.is_displayed()), None)

        return self.until(named)

    def click(self, text: str) -> None:
        """Click the link or button with this text, once nothing covers it."""

        def clicked() -> bool:
            element = self.link(text)
            self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            try:
                element.click()
            except Exception as error:
                if "intercepted" in str(error) or "not interactable" in str(error):
                    return False
                raise
            return True

        self.until(clicked)

    def click_last(self, text: str) -> None:
        """Click the last visible button with this text: that of the question which asks whether one is sure."""
        self.find(".modal.in, .modal.show")

        def clicked() -> bool:
            found = self.all(".modal-footer .btn-primary, .modal-footer .btn-danger")
            wanted = [each for each in found if each.is_displayed() and text in (each.text or "")]
            if wanted:
                wanted[-1].click()
            return bool(wanted)

        self.until(clicked)

    def submit(self) -> None:
        """Send the form in the window that is open."""
        self.find(".modal form input[type='submit']").click()

    def reloaded(self, selector: str = "body") -> str:
        """Return the text of the page, read anew."""
        self.driver.refresh()
        return self.text(selector)

    def whole(self) -> None:
        """Make the window as large as its page, for a picture of all of it."""
        for _ in range(2):  # a page may get taller where it had a scroll bar
            height = self.driver.execute_script("return document.documentElement.scrollHeight")
            size = {"width": SIZE[0], "height": height, "deviceScaleFactor": 1, "mobile": False}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scrolls(self) -> list[str]:
        """Return the elements of the page that have scroll bars."""
        return self.driver.execute_script(SCROLLS)

    def fill(self, name: str, text: object) -> None:
        """Replace the text of the visible field *name*."""
        field = self.find(f"[name='{name}']")
        field.clear()
        field.send_keys(str(text))

    def select(self, name: str, value: str) -> None:
        """Choose the option of the visible field *name* that has this value or text."""
        field = self.find(f"select[name='{name}']")
        options = Select(field).options
        wanted = next(o for o in options if value in (o.get_attribute("value"), o.text.strip()))
        Select(field).select_by_value(wanted.get_attribute("value") or "")

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, where the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def tab_to(self, text: str, most: int = 150, backwards: bool = False) -> None:
        """Press the tabulator until what has the focus is called *text*."""
        seen = []
        for _ in range(most):
            self.press(Keys.SHIFT + Keys.TAB if backwards else Keys.TAB)
            seen.append(self.focused())
            if text == " ".join(seen[-1].split()):
                return
        raise AssertionError(f"{text} was never focused; there were {seen}")

    def focused(self) -> str:
        """Return the text, value or label of what has the focus."""
        return str(
            self.driver.execute_script(
                "var e = document.activeElement; return (e.getAttribute('aria-label') || "
                "(e.labels && e.labels[0] && e.labels[0].textContent) || e.textContent || e.value || '').trim()"
            )
        )

    def text(self, selector: str = "body") -> str:
        return self.find(selector).text

    def see(self, text: str, selector: str = "body") -> None:
        """Return once the page says *text*."""
        try:
            self.until(lambda: text in self.driver.find_element(By.CSS_SELECTOR, selector).text)
        except AssertionError:
            raise AssertionError(f"the page does not say {text!r}: {self.text()}") from None

    def until(self, condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """Return what *condition* returns, once that is true. The page may change meanwhile."""
        deadline = time.monotonic() + patience
        while True:
            try:
                if found := condition():
                    return found
            except (NoSuchElementException, StaleElementReferenceException, JavascriptException):
                pass
            assert time.monotonic() < deadline, (
                f"not within {patience} s: {self.driver.current_url}"
            )
            time.sleep(0.1)

    def nameless(self, selector: str) -> list[str]:
        """Return what a screen reader could not name below *selector*: things to operate, and pictures."""
        found = self.driver.execute_cdp_cmd(
            "Runtime.evaluate", {"expression": f"document.querySelector({selector!r})"}
        )
        nodes = self.driver.execute_cdp_cmd(
            "Accessibility.queryAXTree", {"objectId": found["result"]["objectId"]}
        )["nodes"]
        return [
            str(node)
            for node in nodes
            if not node.get("ignored")
            and node.get("role", {}).get("value") in OPERABLE | {"image", "img"}
            and not node.get("name", {}).get("value", "").strip()
        ]

    def shoot(self, path: Path) -> None:
        """Take a picture of the window."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))

    def cookies(self) -> dict[str, str]:
        return {cookie["name"]: cookie["value"] for cookie in self.driver.get_cookies()}
