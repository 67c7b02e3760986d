"""Results and agents in a notebook: what their cards say, and that nothing in a name becomes HTML."""

import builtins
import dataclasses
import re
import xml.etree.ElementTree as xml

import numpy as np
import pytest

import stormpg
from stormpg import statistics
from stormpg.algorithms import Algorithm
from stormpg.report import card, svg

SMALL = {"trajectories": 60, "horizon": 40}


@pytest.fixture(scope="module")
def result():
    return stormpg.train("cartpole-continuous", stormpg.storm_pg(eta=0.02), seeds=6, **SMALL)


def parsed(html: str) -> xml.Element:
    """The card as a tree. It is also XML, apart from the one named entity."""
    return xml.fromstring(html.replace("&nbsp;", " "))


def words(html: str) -> str:
    return " ".join(" ".join(parsed(html).itertext()).split())


def paths(html: str, width: str) -> list[str]:
    return re.findall(rf'<path d="([^"]*)" stroke="[^"]*" stroke-width="{width}"', html)


def test_the_card_of_a_result(result):
    html = result._repr_html_()
    said = words(html)
    final = result.final_return()[0]
    found = statistics.interval(final)
    assert "storm-pg on cartpole-continuous" in said
    assert "6 seeds (0 to 5), 60 trajectories" in said
    assert f"{final.mean():.2f}" in said
    assert f"{float(found.low):.2f} to {float(found.high):.2f}" in said
    assert f"{final.min():.2f}" in said
    assert "eta 0.02" in said
    assert "kind gaussian-mlp" in said
    assert len(paths(html, "1")) == 6
    assert len(paths(html, "2.6")) == 1
    assert [t.text for t in parsed(html).iter("title")] == [f"seed {seed}" for seed in range(6)]
    assert "<style" not in html
    assert " id=" not in html


def test_the_thick_line_is_the_mean_of_the_seeds(result):
    """At the end of the curves, in the units of the picture."""
    html = result._repr_html_()
    ends = [float(line.rsplit(" ", 1)[1]) for line in (*paths(html, "1"), *paths(html, "2.6"))]
    assert ends[-1] == pytest.approx(np.mean(ends[:-1]), abs=0.1)


def test_in_one_line_where_there_is_only_text(result):
    assert repr(result).startswith("Result(storm-pg on cartpole-continuous: 6 seeds (0 to 5), 60 trajectories")
    assert len(repr(result)) < 200


def test_a_sweep_names_what_differs():
    algorithms = [stormpg.storm_pg(alpha=a) for a in (0.25, 0.75)]
    html = stormpg.train("cartpole-continuous", algorithms, seeds=2, **SMALL)._repr_html_()
    said = words(html)
    assert "■ alpha 0.25" in said
    assert "■ alpha 0.75" in said
    assert "2 settings, each with 2 seeds" in said
    assert said.count("alpha") == 2, "what differs is not among the common settings"
    assert len(paths(html, "2.6")) == 2


def test_a_large_sweep_is_cut():
    html = stormpg.train("chain", [stormpg.storm_pg(alpha=a) for a in np.linspace(0.1, 0.9, 15)], 20, seeds=1)._repr_html_()
    assert "and 3 more settings" in words(html)
    assert len(paths(html, "2.6")) == card.ROWS


def test_many_seeds_have_few_lines():
    html = stormpg.train("chain", stormpg.storm_pg(), 20, seeds=100)._repr_html_()
    assert len(paths(html, "1")) == card.THIN
    assert f"the first {card.THIN}" in words(html)
    assert len(html) < 60_000


def test_names_are_not_html(result):
    evil = "<script>alert(1)</script>\x1b[2J&\"'"
    env = dataclasses.replace(result.env, name=evil)
    algorithm = dataclasses.replace(result.algorithms[0], name=evil, note=type(result.algorithms[0].note)({evil: evil}))
    html = dataclasses.replace(result, env=env, algorithms=(algorithm,))._repr_html_()
    assert "<script" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;alert(1)" in html
    parsed(html)


def test_a_row_of_ones_own_and_a_policy_of_ones_own():
    """Neither has settings that could be listed."""
    own = stormpg.storm_pg()
    row = Algorithm(own.estimator, own.tracker, own.schedule, own.step, "mine")

    class Mine:
        def __getattr__(self, name):
            return getattr(inner, name)

    inner = stormpg.policy_for(stormpg.make("chain"))
    said = words(stormpg.train("chain", row, 20, seeds=2, policy=Mine())._repr_html_())
    assert "mine on chain" in said
    assert "Algorithm:" not in said
    assert "Policy: kind Mine" in said


def test_diverged_seeds_are_counted():
    result = stormpg.train("lqr", stormpg.storm_pg(eta=1e-4, S0=4, B=2, optimizer="sgd"), 40, seeds=4)
    states = result.states._replace(diverged=np.array([True, False, True, False]))
    columns = dict(result.columns)
    columns["return"] = np.where(columns["seed"] == 0, np.nan, columns["return"])
    said = words(dataclasses.replace(result, states=states, columns=columns)._repr_html_())
    assert "(2 diverged)" in said
    assert "mean return 95% interval worst seed best seed – –" in said


def test_without_scipy_there_is_no_interval(result, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("scipy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="scipy")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert f"{result.final_return().mean():.2f} – " in words(result._repr_html_())


def test_an_agent_before_and_after_learning():
    agent = stormpg.Agent("chain", "storm-pg", eta=0.05)
    assert "storm-pg on chain" in words(agent._repr_html_())
    assert "has not learned yet" in words(agent._repr_html_())
    assert "eta 0.05" in words(agent._repr_html_())
    assert repr(agent) == "Agent(storm-pg on chain, not trained)"
    agent.learn(30)
    assert f"seed 0, 30 trajectories and {int(agent.result.states.steps[0])} steps" in words(agent._repr_html_())
    assert "interval" not in words(agent._repr_html_())
    assert repr(agent).startswith("Agent(storm-pg on chain: seed 0, 30 trajectories")


# ---- The chart


def test_a_gap_interrupts_a_line():
    x = np.arange(4.0)
    assert svg.path(x, np.array([1.0, np.nan, 3.0, 4.0])) == "M0 1M2 3L3 4"
    assert svg.path(x, np.full(4, np.inf)).count("L") == 3  # at the edge


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (-0.3, 0.3, [-0.2, 0, 0.2]),
        (1e6, 1.5e6, [1e6, 1.1e6, 1.2e6, 1.3e6, 1.4e6, 1.5e6]),
    ],
)
def test_ticks_are_round(low, high, expected):
    np.testing.assert_allclose(svg.ticks(low, high), expected, atol=1e-12)


def test_one_bad_seed_does_not_flatten_the_others():
    good = [np.linspace(0, 100, 200) for _ in range(150)]
    low, high = svg.limits([*good, np.full(200, -1e30)])
    assert -10 < low < 0
    assert 100 < high < 110
    assert svg.limits([]) == (0.0, 1.0)
    assert svg.limits([np.full(3, 7.0)]) == (7 - 0.28, 7 + 0.28)
