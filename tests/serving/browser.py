"""Debian's Chromium, driven headless. It talks to nobody but the service under test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
)


def program(name: str) -> str:
    """Path of a program; without it the test is skipped."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is missing; on Debian: apt-get install chromium chromium-driver")
    return path


@contextmanager
def chromium(width: int = 1280, height: int = 1000) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options, webdriver.ChromeService(program("chromedriver")))
        try:
            driver.set_page_load_timeout(60)
            resize(driver, width, height)
            yield driver
        finally:
            driver.quit()


def resize(driver: webdriver.Chrome, width: int, height: int) -> None:
    """The page's own size, which may be narrower than any window."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def color_scheme(driver: webdriver.Chrome, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def screenshot(driver: webdriver.Chrome, path: Path) -> None:
    path.write_bytes(driver.get_screenshot_as_png())
