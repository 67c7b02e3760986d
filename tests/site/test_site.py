"""The site is built without a warning, and works in a browser without a network."""

import functools
import html.parser
import http.server
import inspect
import os
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import pytest
from docs.site_hooks import as_commands
from docs.site_symbols import on_page_content

from stormpg.algorithms import ALGORITHMS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SOME = ("index.html", "start.html", "choose.html", "glossary.html", "api.html", "algorithms/storm-pg.html")


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


def test_every_picture_has_a_text(site):
    """For those who cannot see it: of pictures in pages and in notebooks."""
    pictures = [(name, tag) for name in pages(site) for tag in re.findall(r"<img\b[^>]*>", (site / name).read_text("utf-8"))]
    assert len(pictures) > 40
    for name, tag in pictures:
        assert re.search(r'alt="[^"]{4,}"', tag), (name, tag[:200])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g_t = α_t d(ξ_{t+1})", "g<sub>t</sub> = α<sub>t</sub> d(ξ<sub>t+1</sub>)"),
        ("d^{ξ_t}(ξ_ref)", "d<sup>ξ<sub>t</sub></sup>(ξ<sub>ref</sub>)"),
        ("π_ξ(a)/π_ξ'(a) of ξ_t's batch", "π<sub>ξ</sub>(a)/π<sub>ξ'</sub>(a) of ξ<sub>t</sub>'s batch"),
        ("(w + t)^⅓ and C_w²", "(w + t)<sup>⅓</sup> and C<sub>w</sub>²"),
        ("η · decay^(t / decay_every)", "η · decay<sup>t / decay_every</sup>"),
        ("<code>b_h</code> is <a href='a_t'>weight_low</a>", "<code>b_h</code> is <a href='a_t'>weight_low</a>"),
    ],
)
def test_symbols_have_sub_and_superscripts(text, expected):
    assert on_page_content(text) == expected


def test_blocks_of_no_language_are_commands():
    text = "a\n```\npip install x\n```\nb\n```text\n```\n```python\n1\n```\n- c\n  ```\n  ls\n  ```\n"
    expected = "a\n```sh\npip install x\n```\nb\n```text\n```\n```python\n1\n```\n- c\n  ```sh\n  ls\n  ```\n"
    assert as_commands(text) == expected


class Links(html.parser.HTMLParser):
    """The targets of a page's links, and the places that links can go to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets, self.places = set[str](), {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        given = dict(attrs)
        self.places |= {given[key] for key in ("id", "name") if given.get(key)}
        self.targets |= {given[key] for key in ("href", "src") if given.get(key) and tag in ("a", "img", "script", "link")}


def test_every_link_goes_somewhere(site):
    """Without a network: files and places of this site. The strict build checks only links that are written in Markdown."""
    found = {site / name: Links((site / name).read_text("utf-8")) for name in pages(site)}
    checked = 0
    for page, links in found.items():
        for target in links.targets:
            if re.match(r"[a-z]+:|//", target):
                continue
            path, _, place = urllib.parse.unquote(target).partition("#")
            file = (page.parent / path).resolve() if path else page
            file = file / "index.html" if file.is_dir() else file
            assert file.is_file(), (page.name, target)
            if place and file in found:
                assert place in found[file].places, (page.name, target)
            checked += 1
    assert checked > 1000


def test_the_reference_shows_settings(site):
    """From the table of settings: mkdocstrings alone would show docstrings as they are in the source."""
    text = re.sub(r"<[^>]+>", "", (site / "constructors.html").read_text("utf-8"))
    assert "α, weight of the new estimate; 1: no memory. From 0 to 1. Tuned over 0.05 to 1." in text
    for make in ALGORITHMS.values():
        assert f"{inspect.unwrap(make).__name__}(" in text
    reference = (site / "api.html").read_text("utf-8")
    assert re.search(r"<td><code>trajectories</code></td>\s*<td>the budget of each seed", reference)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_pages_open_without_an_error(browser, address, site, width, scheme):
    """Wide and on a phone, in light and dark; nothing is wider than the screen."""
    name = {"light": "default", "dark": "slate"}[scheme]
    size = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    theme = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
    browser.get("about:blank")  # the site remembers the scheme of the first visit
    browser.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": address, "storageTypes": "local_storage"})
    browser.get_log("browser")
    every = pages(site)
    others = [page for page in every if not page.startswith("algorithms/")]
    shown = {(1280, "light"): every, (390, "dark"): [*others, SOME[-1]]}.get((width, scheme), SOME)
    for page in shown:
        browser.get(f"{address}/{page}")
        errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert not errors, (page, errors)
        wanted = f"return document.body.dataset.mdColorScheme === '{name}'"
        assert any(browser.execute_script(wanted) or time.sleep(0.05) for _ in range(400)), (page, scheme)  # set by a script
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
        assert browser.execute_script("return document.querySelectorAll('h1').length") == 1, page
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


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
