"""The site is built without a warning, and works in a browser without a network."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stormpg.algorithms import ALGORITHMS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(made_once) -> Path:
    """The site, built strictly: a warning, such as a broken link, is an error."""
    pytest.importorskip("mkdocs")

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder.absolute())]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return made_once("site", build)


@pytest.fixture(scope="module")
def address(site):
    """The site, served on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def pages(site: Path) -> list[str]:
    return sorted(str(file.relative_to(site)) for file in site.rglob("*.html") if file.name != "404.html")


def test_every_algorithm_has_a_page(site):
    assert {f"algorithms/{name}.html" for name in ALGORITHMS} <= set(pages(site))


def test_nothing_is_loaded_from_elsewhere(site):
    for name in pages(site):
        loaded = re.findall(
            r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?:)?//', (site / name).read_text("utf-8")
        )
        assert not loaded, name


def test_pages_open_without_an_error(browser, address, site):
    """In light, dark and on a phone."""
    for number, name in enumerate(pages(site)):
        browser.set_window_size(*((1280, 900) if number % 2 else (390, 800)))
        theme = {"name": "prefers-color-scheme", "value": "dark" if number % 3 else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
        browser.get_log("browser")
        browser.get(f"{address}/{name}")
        errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert not errors, (name, errors)
        assert browser.execute_script("return document.querySelectorAll('h1').length") >= 1, name


def test_the_search_finds_an_algorithm(browser, address):
    browser.set_window_size(1280, 900)
    browser.get(f"{address}/index.html")
    browser.execute_script("document.querySelector('[for=__search]').click()")
    box = browser.find_element("css selector", "input.md-search__input")
    box.send_keys("storm_pg")
    results: list[str] = []
    for _ in range(100):
        results = [one.get_attribute("href") for one in browser.find_elements("css selector", "a.md-search-result__link")]
        if results:
            break
        time.sleep(0.1)
    assert any("algorithms/storm-pg.html" in link for link in results), results
