"""The results page, opened from disk in a real browser."""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpg.report.page import embedded, write_page

pytestmark = pytest.mark.slow

ALGORITHMS = ("STORM-PG", "SRVR-PG", "SVRPG", "GPOMDP", "Adam")
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!-- <b>bold</b> &amp; \u2028",
    'x" onclick="alert(3)',
)
GRID = np.linspace(0, 5000, 51)


def interval(values: np.ndarray, statistic: str) -> dict[str, Any]:
    middle, error = values.mean(axis=0), values.std(axis=0) / len(values) ** 0.5
    shown = middle if statistic == "mean" else np.median(values, axis=0)
    return {
        "statistic": statistic,
        "estimate": shown,
        "low": shown - 2 * error,
        "high": shown + 2 * error,
        "seeds": len(values),
    }


def environment(name: str, top: float, random: np.random.Generator, algorithms: tuple[str, ...] = ALGORITHMS) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for rank, algorithm in enumerate(algorithms):
        noise = random.normal(0, top / 60, (10, len(GRID))).cumsum(axis=1) / 2 + random.normal(0, top / 20, (10, 1))
        values = top * (0.96 - 0.08 * rank) * (1 - np.exp(-GRID / (500 + 350 * rank))) + noise * (GRID > 0)
        runs = {"paper": values[:5], "all": values * 0.97}
        shown = {"paper": interval(values[:5], "mean"), "all": interval(values * 0.97, "IQM")}
        if rank < 2:
            runs["tuned"] = values[:, :21] * 1.02
            shown["tuned"] = {**interval(runs["tuned"], "IQM"), "grid": GRID[:21].astype(int)}  # a shorter budget
        made[algorithm] = {"curves": shown, "runs": runs}
    thresholds = np.linspace(0, top, 41)
    shares = {a: (made[a]["runs"]["all"][:, -1:] > thresholds).mean(axis=0) for a in algorithms}
    return {
        "name": name,
        "title": name.replace("-", " ").capitalize(),
        "ceiling": top,
        "grid": GRID.astype(int),
        "algorithms": made,
        "profiles": {
            "thresholds": thresholds,
            "algorithms": {
                a: {"estimate": s, "low": s - 0.3 * s * (1 - s), "high": s + 0.3 * s * (1 - s)} for a, s in shares.items()
            },
        },
        "improvement": [
            {"x": algorithms[0], "y": other, "estimate": 0.5 + 0.1 * i, "low": 0.3 + 0.12 * i, "high": 0.75 + 0.05 * i}
            for i, other in enumerate(algorithms[1:])
        ],
    }


def results(algorithms: tuple[str, ...] = ALGORITHMS) -> dict[str, Any]:
    """Synthetic results of every kind the page can show."""
    random = np.random.default_rng(0)
    settings = {"eta": 5e-3, "alpha": 0.9, "S0": 50, "B": 5, "gamma": 0.999, "policy": "gaussian [8]"}
    eta, alpha = [0.0005, 0.001, 0.005, 0.01, 0.05], [0.8, 0.9, 0.95, 0.99]
    final = 800 * np.exp(-((np.log(eta) - np.log(0.005)) ** 2) / 4) * np.array(alpha)[:, None]
    falling = 2.0 * np.exp(-np.arange(6) / 3)
    verdicts = ("holds", "does not hold", "cannot be told", "holds")
    sentences = (
        "STORM-PG reaches a higher return than SVRPG and SRVR-PG on the continuous cart-pole.",
        "STORM-PG needs fewer trajectories to the same return on mountain car.",
        "STORM-PG is as stable as SRVR-PG late in training.",
        "Plain gradients learn more slowly than every method with reduced variance.",
    )
    return {
        "title": "What STORM-PG gains, measured",
        "subtitle": "Four claims of the paper, three ways to choose the settings, every curve with its interval.",
        "notes": ["The paper gives no numbers for its bands: only their width in the figures was compared."],
        "protocols": {
            "paper": {"label": "As in the paper", "note": "Settings of the paper, five seeds, mean."},
            "all": {"label": "All seeds", "note": "The same settings, ten fresh seeds, interquartile mean."},
            "tuned": {"label": "Tuned alike", "note": "Every algorithm with the same budget of search: run `stormpg tune`."},
        },
        "multiplicity": "Four claims were tested.",
        "claims": [
            {
                "id": f"C{i + 1}",
                "sentence": sentence,
                "quantity": "ratio of final returns",
                "paper": "≈ 1.15",
                "results": {
                    "paper": {"figure": f"{1.21 - 0.1 * i:.2f}", "interval": "[1.08, 1.33]", "verdict": verdicts[i]},
                    "all": {"figure": f"{1.12 - 0.1 * i:.2f}", "interval": "[1.01, 1.22]", "verdict": verdicts[(i + 1) % 4]},
                },
            }
            for i, sentence in enumerate(sentences)
        ],
        "environments": [
            environment(name, top, random, algorithms) for name, top in (("cartpole-continuous", 1000), ("mountain-car", 90))
        ],
        "heatmaps": [
            {
                "env": "cartpole-continuous",
                "algorithm": algorithm,
                "title": f"{algorithm} on the cart-pole",
                "x_name": "eta",
                "x": eta,
                "y_name": "alpha",
                "y": alpha,
                "final": final * factor,
                "reach": np.where(final * factor > 300, 4e5 / final, np.nan),
                "share": 0.43,
                "share_interval": [0.3, 0.551],
            }
            for algorithm, factor in zip(algorithms[:2], (1, 0.8), strict=True)
        ],
        "variance": [
            {
                "env": name,
                "checkpoints": [0, 1000, 2000, 3000, 4000, 5000],
                "algorithms": {
                    a: {
                        "variance": falling * 10.0**-rank,
                        "bias": np.array([0, *(falling[1:] / 50)]),
                        "error": falling * (10.0**-rank + 0.02),
                        "plain": falling * 3,
                        "signal": np.sqrt(falling),
                    }
                    for rank, a in enumerate(algorithms[:3])
                },
            }
            for name in ("cartpole-continuous", "mountain-car")
        ],
        "charts": [
            {
                "section": "Rates",
                "title": f"Trajectories, {log or 'plain'}",
                "x_name": "ε",
                "y_name": "trajectories",
                "log": log,
                "level": 1.0,
                "note": "Two methods.",
                "series": [
                    {
                        "name": a,
                        "x": [0.1, 0.01, 0.001],
                        "estimate": [10, 1e3, None],
                        "low": [9, 900, None],
                        "high": [11, 1100, None],
                    }
                    for a in algorithms[:2]
                ],
            }
            for log in ("xy", "")
        ]
        + [
            {
                "section": "Where it pays",
                "title": "A map",
                "label": "ratio",
                "x_name": "horizon",
                "x": [3, 10],
                "y_name": "noise",
                "y": [0, 1],
                "final": [[0.5, 2.0], [1.0, None]],
            }
        ],
        "tables": [{"title": "Slopes", "caption": "Of log N", "heads": ["method", "slope"], "rows": [["STORM-PG", "−2.9"]]}],
        "settings": [
            {"env": "cartpole-continuous", "algorithm": a, "protocol": p, "settings": settings}
            for a in algorithms
            for p in ("paper", "all")
        ],
        "commands": ["stormpg reproduce paper --seeds 10 --out results/paper --environments cartpole-continuous mountain-car"],
        "versions": {"stormpg": "0.1.0", "jax": "0.6.0", "python": "3.11.9"},
    }


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("page") / "sub" / "page.html"
    write_page(results(), made)
    return made


START = "window.start = [...document.querySelectorAll('input, select')].map((one) => [one, one.checked, one.value])"
BACK = """
for (const [one, checked, value] of start) {
  if (one.checked === checked && one.value === value) continue;
  Object.assign(one, { value, checked });
  one.dispatchEvent(new Event("change"));
}
"""


@pytest.fixture
def page(browser, file):
    """The page with all controls in their initial state. Resetting them is faster than reloading the page."""
    if browser.execute_script("return Boolean(window.start)"):
        browser.execute_script(BACK)
    else:
        browser.get_log("browser"), browser.get_log("performance")
        browser.get(file.as_uri())
        browser.execute_script(START)
    return browser


def click(browser, name: str) -> None:
    browser.execute_script("document.getElementById(arguments[0]).click()", name)


def choose(browser, name: str, value: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.select import Select

    Select(browser.find_element(By.ID, name)).select_by_value(value)


def traces(browser, name: str, kind: str = "") -> list[dict[str, Any]]:
    """The traces of a figure; only those of one kind, if given."""
    found = browser.execute_script("return JSON.stringify(document.getElementById(arguments[0]).data)", name)
    return [trace for trace in json.loads(found) if not kind or trace.get("meta") == kind]


def layout(browser, name: str) -> dict[str, Any]:
    return json.loads(browser.execute_script("return JSON.stringify(document.getElementById(arguments[0]).layout)", name))


def words(browser, name: str) -> str:
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", name)


def open_page(browser, data: dict[str, Any], file: Path) -> None:
    write_page(data, file)
    browser.get_log("browser")
    browser.get(file.as_uri())
    assert browser.get_log("browser") == []


def test_opens_without_an_error_and_without_a_request(page, file):
    assert page.get_log("browser") == []
    assert len(page.execute_script("return [...document.querySelectorAll('.plot .main-svg')]")) >= 10
    sent = [json.loads(line["message"])["message"] for line in page.get_log("performance")]
    addresses = [event["params"]["request"]["url"] for event in sent if event["method"] == "Network.requestWillBeSent"]
    addresses += page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert file.as_uri() in addresses
    assert all(address.startswith(("file:", "data:", "blob:")) for address in addresses)


def test_holds_all_it_needs(file):
    content = file.read_text()
    outside = re.sub(r"<script>.*?</script>", "", content, flags=re.DOTALL)
    assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?\s*(?:https?:)?//", outside)
    assert "default-src 'none'" in outside
    assert [entry.name for entry in file.parent.iterdir()] == ["page.html"]


def test_says_the_figures_need_javascript_and_keeps_the_tables(browser, file):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(file.as_uri())
        shown = browser.find_element("tag name", "body").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "JavaScript, which is off" in shown
    assert all(part in shown for part in ("does not hold", "gaussian [8]", "stormpg reproduce paper", "0.6.0"))


def test_verdicts_come_first_and_say_it_in_words(page):
    assert page.execute_script("return document.querySelector('main > section').id") == "verdicts"
    badges = page.execute_script("return [...document.querySelectorAll('tbody .verdict')].map((badge) => badge.textContent)")
    assert badges[:3] == ["✓ holds", "✗ does not hold", "– not measured"]
    assert len(badges) == 12
    assert "2 of 4 hold" in words(page, "verdicts")
    assert "Four claims were tested." in words(page, "verdicts")
    assert "run `stormpg tune`" in words(page, "verdicts")


def test_a_protocol_changes_the_lines_and_the_statistic(page):
    before, axis = traces(page, "environment-0-curves", "estimate"), layout(page, "environment-0-curves")["yaxis"]
    choose(page, "environment-0-protocol", "all")
    after = traces(page, "environment-0-curves", "estimate")
    assert axis["title"]["text"] == "return (mean)"
    assert layout(page, "environment-0-curves")["yaxis"]["title"]["text"] == "return (IQM)"
    assert "All seeds: IQM" in words(page, "environment-0-curves-caption")
    assert [trace["y"] for trace in before] != [trace["y"] for trace in after]
    expected = results()["environments"][0]["algorithms"]["STORM-PG"]["curves"]["all"]["estimate"]
    np.testing.assert_allclose(after[0]["y"], expected, rtol=1e-5, atol=1e-5)


def test_a_protocol_not_measured_is_named_with_its_note(page):
    choose(page, "environment-0-protocol", "tuned")
    shown = traces(page, "environment-0-curves", "estimate")
    assert [trace["name"] for trace in shown] == ["STORM-PG", "SRVR-PG"]
    assert [(len(trace["x"]), trace["x"][-1]) for trace in shown] == [(21, 2000)] * 2
    assert "after 2000 trajectories" in words(page, "environment-0-curves-caption").replace("\u202f", "")
    assert "Not measured under this protocol: SVRPG, GPOMDP, Adam. Every algorithm" in words(
        page, "environment-0-curves-caption"
    )


def test_an_unchecked_algorithm_goes_from_every_figure_of_its_environment(page):
    click(page, "environment-0-algorithm-0")
    for name in ("environment-0-curves", "environment-0-profile", "environment-0-improvement"):
        assert not [trace for trace in traces(page, name) if "STORM-PG" in trace["name"]]
    assert "STORM-PG" not in page.execute_script("return document.getElementById('environment-0-curves').ariaLabel")
    assert [trace for trace in traces(page, "environment-1-curves") if trace["name"] == "STORM-PG"]
    click(page, "environment-0-algorithm-0")
    assert [trace for trace in traces(page, "environment-0-curves") if trace["name"] == "STORM-PG"]


def test_the_x_axis_turns_logarithmic(page):
    assert layout(page, "environment-0-curves")["xaxis"]["type"] == "linear"
    click(page, "environment-0-log")
    assert layout(page, "environment-0-curves")["xaxis"]["type"] == "log"


def test_single_seeds_are_added(page):
    assert not traces(page, "environment-0-curves", "single")
    click(page, "environment-0-seeds")
    drawn = traces(page, "environment-0-curves", "single")
    assert len(drawn) == len(ALGORITHMS)
    assert len(drawn[0]["y"]) == 5 * (len(GRID) + 1)


def test_charts_of_a_section_stand_together(page):
    assert page.execute_script("return document.querySelector('#charts-0 h2').textContent") == "Rates"
    assert [layout(page, f"charts-0-{i}")["xaxis"]["type"] for i in range(2)] == ["log", "linear"]
    drawn = traces(page, "charts-0-0", "estimate")
    assert [trace["y"] for trace in drawn] == [[10, 1000, None]] * 2
    assert drawn[0]["line"]["color"] == traces(page, "environment-0-curves", "estimate")[0]["line"]["color"]
    assert "Two methods. At the right end: STORM-PG 1000" in words(page, "charts-0-0-caption").replace("\u202f", "")
    assert "Highest ratio: 2, at horizon 10, noise 0" in words(page, "charts-1-0-caption")


def test_a_table_of_any_kind_stands_without_javascript(file):
    assert '<th scope="row">STORM-PG</th><td>−2.9</td>' in file.read_text()


def test_heat_maps_change_what_they_show(page):
    final = traces(page, "heatmap-0")[0]["z"]
    choose(page, "heatmaps-quantity", "reach")
    reach = traces(page, "heatmap-0")[0]["z"]
    assert final != reach
    assert any(value is None for row in reach for value in row)
    assert "never reached" in words(page, "heatmap-0-caption")
    assert "near the best: 43 % [30 %, 55.1 %]" in words(page, "heatmap-0-caption")


def test_variance_changes_what_it_shows(page):
    assert layout(page, "variance-0")["yaxis"]["type"] == "log"
    variance = traces(page, "variance-0", "estimate")
    choose(page, "variance-0-quantity", "bias")
    assert [trace["y"] for trace in variance] != [trace["y"] for trace in traces(page, "variance-0", "estimate")]
    assert "3 values at or below zero" in words(page, "variance-0-caption")
    assert traces(page, "variance-0", "plain")
    click(page, "variance-0-plain")
    assert not traces(page, "variance-0", "plain")


def test_two_changes_at_once_are_both_drawn(page):
    choose(page, "variance-0-quantity", "bias")
    click(page, "variance-0-plain")
    page.execute_script(BACK)
    assert layout(page, "variance-0")["yaxis"]["title"]["text"] == "variance"
    assert traces(page, "variance-0", "plain")


def test_an_algorithm_looks_the_same_everywhere(page):
    looks = {}
    for name in ("environment-0-curves", "environment-1-curves", "environment-0-profile", "variance-0"):
        for trace in traces(page, name, "estimate"):
            look = trace["line"]["color"], trace["line"]["dash"]
            assert looks.setdefault(trace["name"], look) == look
    assert len(set(looks.values())) == len(ALGORITHMS)
    assert looks["STORM-PG"] == ("#0072B2", "solid")


def test_figures_are_not_blank(page):
    from matplotlib.image import imread

    for name in ("environment-0-curves", "environment-0-profile", "environment-0-improvement", "heatmap-0", "variance-0"):
        picture = imread(io.BytesIO(page.find_element("id", name).screenshot_as_png), format="png")[..., :3]
        colours = np.unique((picture * 255).astype(int).reshape(-1, 3), axis=0)
        saturated = colours.max(axis=1) - colours.min(axis=1) > 80
        assert saturated.sum() > 3, name  # more than grey axes and text


def test_hostile_names_are_only_text(browser, tmp_path):
    data = results(HOSTILE)
    data["title"] = data["environments"][0]["title"] = data["protocols"]["paper"]["label"] = HOSTILE[1]
    data["claims"][0]["sentence"] = data["commands"][0] = data["heatmaps"][0]["x_name"] = data["notes"][0] = HOSTILE[0]
    data["claims"][0]["results"]["paper"]["verdict"] = data["settings"][0]["settings"]["policy"] = HOSTILE[3]
    open_page(browser, data, tmp_path / "page.html")
    assert browser.title == browser.find_element("tag name", "h1").text == HOSTILE[1]
    for index, name in enumerate(HOSTILE):
        label = f"document.getElementById('environment-0-algorithm-{index}').parentNode.textContent"
        assert browser.execute_script(f"return {label}") == name
    ticks = browser.execute_script(
        "return [...document.querySelectorAll('.ytick text')].map((tick) => tick.textContent).join()"
    )
    assert "<img src=x onerror=aler… > </script>" in ticks  # long names are shortened
    assert browser.execute_script("return document.querySelectorAll('img, [onclick], [onerror], main script').length") == 0
    assert browser.execute_script("return document.scripts.length") == 3


def test_data_in_the_page_are_not_markup():
    text = embedded({"a": [*HOSTILE, float("nan"), np.float32(np.inf), np.arange(2)], 3: None})
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text) == {"a": [*HOSTILE, None, None, [0, 1]], "3": None}


def test_a_narrow_screen_scrolls_only_tables(browser, tmp_path):
    made = tmp_path / "page.html"
    write_page(results(("x" * 200, *ALGORITHMS[1:])), made)
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        browser.get(made.as_uri())
        widths = browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
        box = browser.execute_script("const box = document.querySelector('.scroll'); return [box.scrollWidth, box.clientWidth]")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert widths == [360, 360]
    assert box[0] > box[1]


def test_figures_follow_the_theme_while_the_page_is_open(page):
    background = "return getComputedStyle(document.body).backgroundColor"
    light, drawn = page.execute_script(background), layout(page, "environment-0-curves")
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        dark, redrawn = page.execute_script(background), layout(page, "environment-0-curves")
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert light != dark
    assert drawn["paper_bgcolor"] != redrawn["paper_bgcolor"]
    assert drawn["font"]["color"] != redrawn["font"]["color"]


def test_screen_readers_find_their_way(page):
    levels = page.execute_script("return [...document.querySelectorAll('h1, h2, h3')].map((head) => Number(head.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(np.diff(levels)) <= 1
    unnamed = "return [...document.querySelectorAll('input, select')].filter((control) => !control.labels.length).length"
    assert page.execute_script(unnamed) == 0
    assert page.execute_script("return document.querySelectorAll('table:not(:has(caption)), th:not([scope])').length") == 0
    silent = "return [...document.querySelectorAll('.plot')].filter((plot) => !(plot.ariaLabel.match(/[0-9]/))).length"
    assert page.execute_script(silent) == 0
    assert "STORM-PG" in page.execute_script("return document.getElementById('environment-0-curves').ariaLabel")
    assert page.execute_script("return document.documentElement.lang") == "en"


def test_what_was_not_measured_is_left_out(browser, tmp_path):
    data = {key: value for key, value in results().items() if key in ("title", "environments")}
    del data["environments"][0]["profiles"]
    data["environments"][1] = {"name": "bare", "title": "Bare", "ceiling": None, "grid": [], "algorithms": {}}
    open_page(browser, data, tmp_path / "page.html")
    headings = browser.execute_script("return [...document.querySelectorAll('h2')].map((head) => head.textContent)")
    assert headings == ["Cartpole continuous", "Bare"]
    assert "not measured" in words(browser, "environment-1")
    choose(browser, "environment-0-protocol", "all")
    assert "all: IQM" in words(browser, "environment-0-curves-caption")
    open_page(
        browser, {"title": "Empty", "environments": [], "claims": [], "heatmaps": [], "variance": []}, tmp_path / "page.html"
    )
