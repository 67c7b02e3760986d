"""The results page, opened from disk in a real browser."""

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stormpg.report.html import embedded
from stormpg.report.page import write_page

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
        runs = {"paper": {"of": "all", "rows": [0, 1, 2, 3, 4]}, "all": values * 0.97}
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
        "log": name == "cartpole-continuous",
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
    seconds = ("cannot be told", "cannot be told", "cannot be told", "holds")
    verdicts = ("holds", "does not hold", "cannot be told", "holds")
    sentences = (
        "C1: STORM-PG reaches a higher return than SVRPG and SRVR-PG on the continuous cart-pole.",
        "C2: STORM-PG needs fewer trajectories to the same return on mountain car.",
        "C3: STORM-PG is as stable as SRVR-PG late in training.",
        "C4: Plain gradients learn more slowly than every method with reduced variance.",
    )
    return {
        "title": "What STORM-PG gains, measured",
        "subtitle": "Four claims of the paper, three ways to choose the settings, every curve with its interval.",
        "findings": "`STORM-PG` leads. 2 of 4 claims hold.",
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
                "env": ("cartpole-continuous", "mountain-car", "mountain-car", "cartpole-continuous")[i],
                "sentence": sentence,
                "quantity": "ratio of final returns",
                "paper": "≈ 1.15",
                "results": {
                    "paper": {"figure": f"{1.21 - 0.1 * i:.2f}", "interval": "[1.08, 1.33]", "verdict": verdicts[i]},
                    "all": {"figure": f"{1.12 - 0.1 * i:.2f}", "interval": "[1.01, 1.22]", "verdict": seconds[i]},
                },
            }
            for i, sentence in enumerate(sentences)
        ]
        + [{"id": "C5", "env": "mountain-car", "sentence": "C5", "paper": "", "results": {}}],
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
                "marked": [[True, True], [False, False]],
                "star": "decided",
                "cross": "never reached",
            },
            {
                **{"section": "Where it pays", "title": "Another map", "label": "ratio", "x_name": "horizon", "x": [3, 10]},
                **{"y_name": "noise", "y": [0], "final": [[0.25, 3.0]]},
            },
        ],
        "tables": [
            {"title": title, "caption": "Of log N", "heads": ["method", "slope"], "rows": [["STORM-PG", "−2.9"]]}
            for title in ("Rates", "Slopes")
        ],
        "settings": [
            {"env": env, "algorithm": a, "protocol": "(a), (b)", "settings": settings, "given": ["eta", "alpha"]}
            for a in algorithms
            for env in ("cartpole-continuous", "mountain-car")
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


KINDS = {
    "line": "mark.kind === 'line' && !mark.faint",
    "single": "mark.faint && !mark.plain",
    "plain": "mark.plain",
    "band": "mark.kind === 'band'",
    "cell": "mark.kind === 'cell'",
}


def marks(browser, name: str, kind: str = "") -> list[dict[str, Any]]:
    """The marks of a figure; only those of one kind, if given."""
    chosen = f"document.getElementById(arguments[0]).content.marks.filter((mark) => {KINDS.get(kind, 'true')})"
    return json.loads(browser.execute_script(f"return JSON.stringify({chosen})", name))


def names(browser, name: str, kind: str = "line") -> list[str]:
    return [mark["name"] for mark in marks(browser, name, kind)]


def axis(browser, name: str, which: str) -> dict[str, Any]:
    content = f"document.getElementById(arguments[0]).content.{which}"
    return json.loads(browser.execute_script(f"return JSON.stringify({content})", name))


def words(browser, name: str) -> str:
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", name)


def headings(browser) -> list[str]:
    return browser.execute_script("return [...document.querySelectorAll('h2')].map((head) => head.textContent)")


def open_page(browser, data: dict[str, Any], file: Path) -> None:
    write_page(data, file)
    browser.get_log("browser")
    browser.get(file.as_uri())
    assert browser.get_log("browser") == []


def test_opens_without_an_error_and_without_a_request(page, file):
    assert page.get_log("browser") == []
    assert len(page.execute_script("return [...document.querySelectorAll('.plot > svg')]")) >= 10
    sent = [json.loads(line["message"])["message"] for line in page.get_log("performance")]
    addresses = [event["params"]["request"]["url"] for event in sent if event["method"] == "Network.requestWillBeSent"]
    addresses += page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert file.as_uri() in addresses
    assert all(address.startswith(("file:", "data:")) for address in addresses)


def test_holds_all_it_needs(file):
    content = file.read_text()
    outside = re.sub(r"<script>.*?</script>", "", content, flags=re.DOTALL)
    assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?\s*(?:https?:)?//", outside)
    assert "default-src 'none'" in outside
    assert [entry.name for entry in file.parent.iterdir()] == ["page.html"]


def test_no_other_script_runs(page):
    inject = """
    const script = document.createElement("script");
    script.textContent = "window.injected = 1";
    document.body.append(script);
    document.body.insertAdjacentHTML("beforeend", '<img src="data:," onerror="window.injected = 1">');
    """
    page.execute_script(inject)
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert page.execute_script("return window.injected") is None
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))
    page.execute_script(
        "document.body.querySelectorAll(':scope > img, :scope > script:last-of-type').forEach((one) => one.remove())"
    )


def test_a_page_is_small(file, tmp_path):
    """Also that of a comparison with many single runs."""
    assert file.stat().st_size < 500_000
    data = results()
    rows = np.random.default_rng(0).normal(500, 300, (30, 200))
    for env in data["environments"] * 2:
        for shown in env["algorithms"].values():
            shown["runs"] = {"all": [[float(f"{x:.4g}") for x in run] for run in rows], "paper": {"of": "all", "rows": [0, 1]}}
    write_page(data, tmp_path / "large.html")
    assert (tmp_path / "large.html").stat().st_size < 2_000_000


def test_says_the_figures_need_javascript_and_keeps_the_tables(browser, file):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(file.as_uri())
        shown = browser.find_element("tag name", "body").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "JavaScript, which is off" in shown
    expected = ("STORM-PG leads.", "does not hold", "gaussian [8]", "stormpg reproduce paper", "0.6.0", "Return at the end on")
    assert all(part in shown for part in expected)


def test_findings_come_first_then_curves_then_verdicts(page):
    first = page.execute_script("return document.querySelector('main > section').textContent")
    assert first.split() == ["Findings", "STORM-PG", "leads.", "2", "of", "4", "claims", "hold."]
    order = headings(page)
    assert len(set(order)) == len(order)  # no heading twice, though charts and a table have the same title
    expected = [
        "Findings",
        "Cartpole continuous",
        "Mountain car",
        "Rates",
        "Where it pays",
        "Verdicts",
        "Sensitivity to the settings",
    ]
    expected += ["Variance and bias of the estimators", "Slopes", "Settings", "How to repeat it", "Notes"]
    assert order == expected
    linked = page.execute_script("return [...document.querySelectorAll('nav a')].map((link) => link.textContent)")
    assert linked == order


def test_a_table_with_the_title_of_charts_is_in_their_section(page):
    assert "−2.9" in words(page, "charts-0")


def test_verdicts_by_environment_with_the_decided_first_and_in_words(page):
    heads = page.execute_script("return [...document.querySelectorAll('#verdicts h3')].map((head) => head.textContent)")
    assert heads == ["Cartpole continuous", "Mountain car"]
    rows = page.execute_script("return [...document.querySelectorAll('#verdicts tbody th')].map((head) => head.textContent)")
    assert [re.match(r"C\d", row)[0] for row in rows] == ["C4", "C1", "C2", "C3"]  # C4 is decided under both protocols
    badges = page.execute_script("return [...document.querySelectorAll('tbody .verdict')].map((badge) => badge.textContent)")
    assert badges[:4] == ["✓ holds", "✓ holds", "✓ holds", "? cannot be told"]
    assert "As in the paper: ✓ 2 hold, ✗ 1 do not, ? 1 cannot be told." in words(page, "verdicts")
    assert "Four claims were tested." in words(page, "verdicts")
    assert page.execute_script("return document.querySelector('#verdicts dd code').textContent") == "stormpg tune"
    assert "1 claims were not measured" in words(page, "verdicts")


def test_settings_are_those_that_ran(page):
    """The given ones are bold and come first. An algorithm with the same settings in two environments has one row."""
    heads = page.execute_script("return [...document.querySelectorAll('.settings thead th')].map((head) => head.textContent)")
    assert heads[:5] == ["Algorithm", "Environment", "Protocol", "eta", "alpha"]
    first = page.execute_script("return document.querySelector('.settings tbody tr').innerHTML")
    assert "<td>cartpole-continuous, mountain-car</td>" in first
    assert "<strong>0.005</strong>" in first
    assert "<td>0.999</td>" in first


def test_a_protocol_changes_the_lines_and_the_statistic(page):
    before, title = marks(page, "environment-0-curves", "line"), axis(page, "environment-0-curves", "y")["title"]
    choose(page, "curves-protocol", "all")
    after = {mark["name"]: mark["y"] for mark in marks(page, "environment-0-curves", "line")}
    assert title == "return (mean)"
    assert axis(page, "environment-0-curves", "y")["title"] == "return (IQM)"
    assert "All seeds: IQM" in words(page, "environment-0-curves-caption")
    assert after != {mark["name"]: mark["y"] for mark in before}
    expected = results()["environments"][0]["algorithms"]["STORM-PG"]["curves"]["all"]["estimate"]
    np.testing.assert_allclose(after["STORM-PG"], expected, rtol=1e-5, atol=1e-5)


def test_a_protocol_not_measured_is_named_with_its_note(page):
    choose(page, "curves-protocol", "tuned")
    shown = marks(page, "environment-0-curves", "line")
    assert sorted(mark["name"] for mark in shown) == ["SRVR-PG", "STORM-PG"]
    assert [(len(mark["x"]), mark["x"][-1]) for mark in shown] == [(21, 2000)] * 2
    caption = words(page, "environment-0-curves-caption").replace("\u202f", "")
    assert "after 2000 trajectories" in caption
    assert "Not measured under this protocol: SVRPG, GPOMDP, Adam. Every algorithm" in caption


def test_an_unchecked_algorithm_goes_from_every_figure_of_curves(page):
    click(page, "curves-algorithm-0")
    for name in ("environment-0-curves", "environment-0-profile", "environment-0-improvement", "environment-1-curves"):
        assert not [mark for mark in marks(page, name) if "STORM-PG" in mark.get("name", "")]
    assert "STORM-PG" not in page.execute_script("return document.getElementById('environment-0-curves').ariaLabel")
    click(page, "curves-algorithm-0")
    assert "STORM-PG" in names(page, "environment-0-curves")


def test_the_x_axis_is_logarithmic_where_that_suits_the_curves_or_as_chosen(page):
    assert [axis(page, f"environment-{i}-curves", "x")["log"] for i in range(2)] == [True, False]
    assert "Logarithmic axis." in words(page, "environment-0-curves-caption")
    for chosen, log in (("linear", False), ("log", True)):
        choose(page, "curves-axis", chosen)
        assert [axis(page, f"environment-{i}-curves", "x")["log"] for i in range(2)] == [log] * 2
    ticks = page.execute_script(
        "return [...document.querySelectorAll('#environment-0-curves .x-tick')].map((t) => t.textContent)"
    )
    assert ticks[-2:] == ["2000", "5000"]


def test_single_seeds_are_added(page):
    assert not marks(page, "environment-0-curves", "single")
    click(page, "curves-seeds")
    drawn = marks(page, "environment-0-curves", "single")
    assert len(drawn) == 5 * len(ALGORITHMS)
    assert len(drawn[0]["y"]) == len(GRID)
    choose(page, "curves-protocol", "all")  # the runs of one algorithm are stored once, and the others as their places
    assert len(marks(page, "environment-1-curves", "single")) == 10 * len(ALGORITHMS)
    assert "Single runs" not in words(page, "environment-1-curves-caption")  # all of them are shown


def test_charts_of_a_section_stand_together(page):
    assert page.execute_script("return document.querySelector('#charts-0 h2').textContent") == "Rates"
    assert [axis(page, f"charts-0-{i}", "x")["log"] for i in range(2)] == [True, False]
    drawn = marks(page, "charts-0-0", "line")
    assert [mark["y"] for mark in drawn] == [[10, 1000, None]] * 2
    looks = {mark["name"]: mark["look"] for mark in marks(page, "environment-0-curves", "line")}
    assert all(mark["look"] == looks[mark["name"]] for mark in drawn)
    spoken = page.execute_script("return document.getElementById('charts-0-0').ariaLabel").replace("\u202f", "")
    assert "Two methods. At the right end: STORM-PG 1000" in spoken
    assert "Highest ratio: 2, at horizon 10, noise 0" in words(page, "charts-1-0-caption")


def test_maps_of_one_kind_share_a_scale_with_a_bar_and_a_key(page):
    """A ratio of 1 is the middle of the scale."""
    ranges = [axis(page, f"charts-1-{i}", "scale") for i in range(2)]
    assert ranges[0] == ranges[1]
    low, high = ranges[0]["range"]
    assert low * high == pytest.approx(1)
    assert high == 4.0  # of the second map
    assert page.execute_script("return document.querySelectorAll('.colour-bar').length") == 4
    caption = words(page, "charts-1-0-caption")
    assert "*: decided." in caption
    assert "×: never reached (1 of 4)." in caption
    final = axis(page, "heatmap-0", "scale"), axis(page, "heatmap-1", "scale")
    assert final[0] == final[1]


def test_a_table_of_any_kind_stands_without_javascript(file):
    assert '<th scope="row">STORM-PG</th><td>−2.9</td>' in file.read_text()


def test_heat_maps_change_what_they_show(page):
    final = [mark["value"] for mark in marks(page, "heatmap-0", "cell")]
    choose(page, "heatmaps-quantity", "reach")
    reach = [mark["value"] for mark in marks(page, "heatmap-0", "cell")]
    assert final != reach
    assert None in reach
    assert "never reached" in words(page, "heatmap-0-caption")
    assert "near the best: 43 % [30 %, 55.1 %]" in words(page, "heatmap-0-caption")


def test_variance_changes_what_it_shows(page):
    assert axis(page, "variance-0", "y")["log"]
    variance = marks(page, "variance-0", "line")
    choose(page, "variance-0-quantity", "bias")
    assert [mark["y"] for mark in variance] != [mark["y"] for mark in marks(page, "variance-0", "line")]
    assert "3 values at or below zero" in words(page, "variance-0-caption")
    assert marks(page, "variance-0", "plain")
    click(page, "variance-0-plain")
    assert not marks(page, "variance-0", "plain")


def test_an_algorithm_looks_the_same_everywhere(page):
    looks = {}
    for name in ("environment-0-curves", "environment-1-curves", "environment-0-profile", "variance-0"):
        for mark in marks(page, name, "line"):
            look = json.dumps(mark["look"])
            assert looks.setdefault(mark["name"], look) == look
    assert len(set(looks.values())) == len(ALGORITHMS)


def test_the_subject_is_the_heaviest_line_and_above_the_others(page):
    drawn = marks(page, "environment-0-curves", "line")
    assert drawn[-1]["name"] == "STORM-PG"
    assert drawn[-1]["look"]["dash"] == []
    assert drawn[-1]["look"]["width"] >= 2 * max(mark["look"]["width"] for mark in drawn[:-1])


def test_thirty_algorithms_are_all_drawn_and_look_different(browser, tmp_path):
    """Only the subject has a band, and pairs are those with it. The key can hide all of them."""
    several = (*tuple(f"method-{i}" for i in range(29)), "storm-pg")
    open_page(browser, results(several), tmp_path / "page.html")
    strokes = browser.execute_script("""return [...document.querySelectorAll('#environment-0-curves svg svg g[data-name] path')]
        .filter((path) => path.getAttribute("fill") === "none")
        .map((path) => [path.getAttribute("stroke"), path.getAttribute("stroke-dasharray")].join())""")
    assert len(strokes) == len(set(strokes)) == 30
    assert names(browser, "environment-0-curves", "band") == ["storm-pg"]
    assert "for the heaviest line only" in words(browser, "environment-0-curves-caption")
    labels = browser.execute_script(
        "return [...document.querySelectorAll('#environment-0-curves text')].map((t) => t.textContent)"
    )
    assert set(several) <= set(labels)
    browser.execute_script(
        "[...document.querySelectorAll('#controls button')].find((one) => one.textContent === 'none').click()"
    )
    assert "nothing to show" in words(browser, "environment-0-curves-caption")


def move(browser, kind: str, name: str, x: float, y: float) -> None:
    """A mouse event at a share of the width and height of a figure."""
    browser.execute_script(
        """const [kind, name, x, y] = arguments, plot = document.getElementById(name), box = plot.getBoundingClientRect();
        const at = { clientX: box.left + x * box.width, clientY: box.top + y * box.height };
        plot.setPointerCapture = () => {};
        plot.dispatchEvent(new PointerEvent(kind, { ...at, pointerType: "mouse", button: 0, bubbles: true }));""",
        *(kind, name, x, y),
    )


def test_values_under_the_pointer_are_shown(page):
    move(page, "pointermove", "environment-0-curves", 0.5, 0.3)
    tip = page.execute_script("return document.querySelector('#environment-0-curves .tip').textContent")
    assert tip.startswith("trajectories sampled: ")
    assert all(name in tip for name in ALGORITHMS)
    move(page, "pointermove", "heatmap-0", 0.5, 0.4)
    tip = page.execute_script("return document.querySelector('#heatmap-0 .tip').textContent")
    assert re.match(r"eta [\d.]+, alpha [\d.]+\d", tip)
    move(page, "pointerleave", "environment-0-curves", 0, 0)
    assert page.execute_script("return document.querySelector('#environment-0-curves .tip').hidden")


def test_an_area_is_zoomed_into_and_a_double_click_shows_everything(page):
    ticks = "return [...document.querySelectorAll('#environment-1-curves .x-tick')].map((t) => t.textContent).join()"
    before = page.execute_script(ticks)
    move(page, "pointerdown", "environment-1-curves", 0.2, 0.2)
    move(page, "pointermove", "environment-1-curves", 0.4, 0.5)
    move(page, "pointerup", "environment-1-curves", 0.4, 0.5)
    assert page.execute_script(ticks) != before
    page.execute_script("document.getElementById('environment-1-curves').dispatchEvent(new MouseEvent('dblclick'))")
    assert page.execute_script(ticks) == before


def test_a_figure_is_saved_as_a_picture_with_its_title(page):
    """The content security policy and the browser allow it for a page on disk."""
    from matplotlib.image import imread

    saved = page.execute_async_script(
        """const done = arguments[0];
        HTMLAnchorElement.prototype.click = function () { done(this.href); };
        document.querySelector("[aria-label='Save Learning curves as a picture']").click();"""
    )
    kind, content = saved.split(",", 1)
    assert kind == "data:image/png;base64"
    picture = imread(io.BytesIO(base64.b64decode(content)), format="png")
    assert picture.shape[:2] == (1240, 2200)
    assert (picture[:100, :1000, 0] < 0.5).any()  # the title


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
    data["findings"] = data["tables"][0]["title"] = data["tables"][0]["caption"] = (
        f"`{HOSTILE[1]}` **{HOSTILE[0]}** {HOSTILE[3]}"
    )
    open_page(browser, data, tmp_path / "page.html")
    assert browser.title == browser.find_element("tag name", "h1").text == HOSTILE[1]
    for index, name in enumerate(HOSTILE):
        label = f"document.getElementById('curves-algorithm-{index}').parentNode.textContent"
        assert browser.execute_script(f"return {label}") == name
    ticks = browser.execute_script("return [...document.querySelectorAll('.y-tick')].map((tick) => tick.textContent).join()")
    assert "<img src=x onerror=aler… > " in ticks  # long names are shortened
    assert browser.execute_script("return document.querySelectorAll('img, [onclick], [onerror], main script').length") == 0
    assert browser.execute_script("return document.scripts.length") == 2
    assert HOSTILE[0] in words(browser, "findings")


def test_data_in_the_page_are_not_markup():
    text = embedded({"a": [*HOSTILE, float("nan"), np.float32(np.inf), np.arange(2)], 3: None})
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text) == {"a": [*HOSTILE, None, None, [0, 1]], "3": None}


def test_a_narrow_screen_scrolls_only_tables_and_keeps_their_first_column(browser, tmp_path):
    made = tmp_path / "page.html"
    write_page(results(("x" * 200, *ALGORITHMS[1:])), made)
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        browser.get(made.as_uri())
        widths = browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
        places = browser.execute_script("""
          return [...document.querySelectorAll(".scroll:has(.verdicts, .settings)")].map((box) => {
            box.scrollLeft = 120;
            const place = (cell) => Math.round(cell.getBoundingClientRect().left - box.getBoundingClientRect().left);
            return [box.scrollLeft, ...["th", "td"].map((tag) => place(box.querySelector(`tbody ${tag}`)))];
        })""")
        drawn = browser.execute_script("return document.getElementById('environment-0-curves').clientWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert widths == [360, 360]
    assert len(places) == 3
    for scrolled, first, second in places:
        assert scrolled > 100
        assert 0 <= first <= 1
        assert second < 100  # it went under the first
    assert 200 < drawn < 360


def test_figures_follow_the_theme_while_the_page_is_open(page):
    from selenium.webdriver.support.ui import WebDriverWait

    background = "return getComputedStyle(document.body).backgroundColor"
    grid = "return document.querySelector('#environment-0-curves svg line').getAttribute('stroke')"
    light, drawn = page.execute_script(background), page.execute_script(grid)
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        WebDriverWait(page, 20).until(lambda page: page.execute_script(grid) != drawn)  # the browser tells the page later
        dark = page.execute_script(background)
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert light != dark


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
    assert headings(browser) == ["Cartpole continuous", "Bare"]
    assert "not measured" in words(browser, "environment-1")
    choose(browser, "curves-protocol", "all")
    assert "all: IQM" in words(browser, "environment-0-curves-caption")
    open_page(
        browser, {"title": "Empty", "environments": [], "claims": [], "heatmaps": [], "variance": []}, tmp_path / "page.html"
    )


def test_curves_of_many_tasks_are_side_by_side(browser, tmp_path):
    """If there are no other figures. The returns at the end are in tables below."""
    data = results()
    data["environments"] = [
        {
            key: value
            for key, value in {**env, "name": f"task-{i}", "title": f"Task {i}"}.items()
            if key not in ("profiles", "improvement")
        }
        for i, env in enumerate(data["environments"] * 2)
    ]
    open_page(browser, data, tmp_path / "page.html")
    assert headings(browser)[1] == "Learning curves"
    tops = browser.execute_script("return [...document.querySelectorAll('#curves figure')].map((one) => one.offsetTop)")
    assert tops[0] == tops[1] < tops[2] == tops[3]
    assert browser.execute_script("return document.querySelectorAll('#curves details table').length") == 4
