"""The benchmark on Brax's robots, in small. Brax is in the environment of `make adapters`."""

import importlib.util
import sys

import pytest

from stormpg.bench import robots, run, tables

SILENT = lambda text: None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # Brax's
def test_robots_in_small(monkeypatch):
    pytest.importorskip("brax", reason="brax is not installed: pip install 'stormpg[brax]'")
    monkeypatch.setattr(robots, "ROBOTS", {"inverted_pendulum": "positional"})
    alone, ours, theirs = robots.robots(2, SILENT, together=8, horizon=10, iterations=2).rows
    assert [row.name for row in (alone, ours, theirs)] == [
        f"inverted_pendulum, {what}" for what in (robots.ALONE, robots.OURS, robots.PPO)
    ]
    assert min(*alone.values, *ours.values, *theirs.values) > 0
    assert ours.about["times PPO"] == pytest.approx(ours.median / theirs.median)
    assert ours.about["share of the environments"] == pytest.approx(ours.median / alone.median)


def test_without_brax_the_rows_say_so(monkeypatch, tmp_path):
    if importlib.util.find_spec("brax") is not None:
        monkeypatch.setitem(sys.modules, "brax", None)
        monkeypatch.delitem(sys.modules, "stormpg.envs.brax", raising=False)
    *_, found = run.bench(("robots",), True, SILENT, tmp_path)
    (stored,) = tables.read(tables.store(found, tmp_path))["tables"]
    assert [row["name"] for row in stored["rows"]] == list(robots.ROBOTS)
    assert all("stormpg[brax]" in row["missing"] for row in stored["rows"])
