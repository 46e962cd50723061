"""The dashboard as a person has it before them: a headless Chromium, driven by Selenium."""

import io
from contextlib import ExitStack
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

from processes import Failed

CHROMIUM = "/usr/bin/chromium"
DRIVER = "/usr/bin/chromedriver"
SEEN_SECONDS_MAX = 30
COLOURS = 256


class Page:
    def __init__(self, stack: ExitStack, url: str) -> None:
        options = Options()
        options.binary_location = CHROMIUM
        # As root and in containers Chromium has no sandbox of its own; it only ever opens our own page.
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.browser = webdriver.Chrome(options=options, service=Service(DRIVER))
        stack.callback(self.browser.quit)
        self.screen(1280, 900)
        self.browser.get(url)

    def screen(self, width: int, height: int, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def run(self, script: str, *arguments):
        """What a script in the page returns."""
        return self.browser.execute_script(f"return {script}", *arguments)

    def once(self, what: str, script: str, *arguments):
        """What the script returns as soon as that is something."""
        try:
            return WebDriverWait(self.browser, SEEN_SECONDS_MAX).until(lambda _: self.run(script, *arguments))
        except Exception as late:
            raise Failed(f"not seen on the page: {what}") from late

    def texts(self, selector: str) -> list[str]:
        return self.run("[...document.querySelectorAll(arguments[0])].map((it) => it.textContent)", selector)

    def complaints(self) -> list[str]:
        """What the browser's console has said since the last look."""
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] != "INFO"]

    def picture(self, path: Path) -> None:
        picture = Image.open(io.BytesIO(self.browser.get_screenshot_as_png()))
        # By coverage, so that a colour which only a small mark has is kept.
        few = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
