"""The data of a report: findings, axes, settings and runs."""

import re
from typing import Any

import numpy as np
import pytest

from stormpg.report.palette import MANY
from stormpg.statistics import iqm
from stormpg.studies import report_content, summary
from stormpg.studies.protocols import PROTOCOLS, Curve, curve
from stormpg.studies.study import Task

GRID = np.arange(20, 2001, 20)


def runs(reach: float, top: float = 100.0, seeds: int = 12, noise: float = 1.0) -> np.ndarray:
    """Curves that rise from 0 to `top` until `reach` trajectories; every seed is a little different."""
    levels = np.random.default_rng(int(reach)).normal(0, noise, (seeds, 1))
    return top * np.minimum(GRID / reach, 1.0) + levels


def curves(protocol: str = "all", **reaches: float) -> dict[str, Curve]:
    """A curve for each algorithm, by the number of trajectories after which it is at the top."""
    return {name: curve(runs(reach), GRID, PROTOCOLS[protocol], name) for name, reach in reaches.items()}


def claims(*verdicts: str) -> list[dict[str, Any]]:
    return [{"results": {"all": {"verdict": verdict}}} for verdict in verdicts]


def test_the_findings_say_who_leads_where_and_how_many_claims_hold():
    found = {
        "cart": {"all": curves(a=200, b=900)},
        "pole": {"all": curves(a=300, b=800)},
        "hill": {"all": curves(a=500, b=501)},
    }
    found["hill"]["tuned"] = curves("tuned", a=900, b=200)
    text = summary.paragraph(found, claims("holds", "does not hold", "cannot be told", "cannot be told"))
    assert re.fullmatch(
        r"On all 12 seeds, by the mean return over whole runs: `a` leads on `cart` and `pole`; "
        r"`[ab]` and `[ab]` are not clearly apart on `hill`\. Equally tuned, `b` leads on `hill`\. "
        r"Of 4 claims, judged on all seeds, 1 holds, 1 does not and 2 cannot be told\.",
        text,
    )


def test_the_findings_on_one_environment_have_numbers():
    text = summary.paragraph({"cart": {"all": curves(a=200, b=900)}})
    first, second = (iqm(runs(reach).mean(axis=1)) for reach in (200, 900))
    assert text.startswith(f"On all 12 seeds, `a` leads on `cart`: the mean return over whole runs (IQM) is {first:.4g} (")
    assert f") for `a` and {second:.4g} (" in text


def test_the_findings_on_several_close_algorithms_name_the_first_only():
    text = summary.leading({"cart": {"all": curves(a=500, b=501, c=502, d=503)}}, "all")
    assert text.startswith("none leads clearly on `cart`, where `")


def test_diverged_runs_are_behind_all_others():
    fine, diverged = np.arange(12.0), np.full(12, np.nan)
    assert summary.leaders({"a": diverged, "b": fine, "c": fine - 100}, "cart") == ("b", [])


def test_one_algorithm_does_not_lead():
    assert "leads" not in summary.paragraph({"cart": {"all": curves(a=200)}})


@pytest.mark.parametrize(
    ("reaches", "log"),
    [((300, 200), True), ((300, 1800), True), ((1800, 1900), False), ((1800, 1900, 100), False)],
)
def test_an_axis_is_logarithmic_if_half_of_the_curves_are_early(reaches, log):
    assert report_content.early(curves(**{f"a{reach}": reach for reach in reaches})) is log


def test_curves_that_only_fall_need_no_logarithmic_axis():
    falling = {"a": curve(-runs(100), GRID, PROTOCOLS["all"], "a")}
    assert report_content.early(falling) is False


def test_settings_are_resolved():
    """GPOMDP has no row in the paper's table for Mountain-Car: it ran with the defaults of its constructor."""
    row = report_content.settings_row("rllab-mountain-car", "gpomdp", "(a), (b)", {}, "gpomdp")
    assert row["settings"] == {
        **{"eta": 0.005, "S0": 25, "gamma": 0.99, "baseline": "time", "optimizer": "adam", "decay": 1.0, "decay_every": 100}
    }
    assert row["given"] == []
    task = Task("e", "e", 10, None, {"tuned": {"eta": 0.1, "sigma": 2.0}}, {}, algorithms={"tuned": "storm-pg"})
    (row,) = report_content.settings_rows([task])
    assert (row["settings"]["eta"], row["settings"]["B"], row["settings"]["sigma"]) == (0.1, 5, 2.0)
    assert row["given"] == ["eta", "sigma"]
    stored = Task("e", "e", 10, None, {"unknown": {"x": 1}}, {})  # of a run folder, which has all of them
    assert report_content.settings_rows([stored])[0]["settings"] == {"x": 1}


def test_single_runs_are_stored_once():
    every = runs(500, seeds=60, noise=5.0)
    made = report_content.single_runs({key: curve(every, GRID, PROTOCOLS[key], "a") for key in ("paper", "all", "mean")})
    assert len(made["all"]) == report_content.MOST_RUNS
    assert made["mean"] == {"of": "all", "rows": list(range(50))}
    best = np.argsort(-every.mean(axis=1))[:10]
    assert made["paper"] == {"of": "all", "rows": [row for row in best if row < 50]}
    np.testing.assert_allclose(made["all"], every[:50], rtol=1e-3)


def test_many_algorithms_are_compared_with_the_subject_only():
    few, many = [f"a{i}" for i in range(MANY)], ["a", *(f"a{i}" for i in range(MANY)), "storm-pg"]
    assert len(report_content.pairs(few)) == MANY * (MANY - 1) / 2
    assert report_content.pairs(many) == [("storm-pg", name) for name in many[:-1]]
