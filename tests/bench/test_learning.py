"""The table of what is learned: its statistics, its store, and one run of our own."""

import json

import numpy as np
import pytest

from stormpg.bench import learning, tables
from stormpg.bench.learning import LEARNERS, OURS, TASKS, Learner, Task

pytest.importorskip("gymnasium")


def made_up(score_of):
    """Runs of all learners on all tasks: every episode of seed s has this score."""
    runs = []
    for learner in LEARNERS:
        for task in TASKS:
            for seed in range(learner.seeds):
                value = task.random + score_of(learner.name, seed) * (task.best - task.random)
                run = {"learner": learner.name, "env": task.env, "asked": task.steps, "seed": seed, "cpu_seconds": 2.0}
                runs.append({**run, "sampled": [value] * 20, "mode": [value] * 20, "settings": learning.ours()})
    return runs


def test_scores_and_their_interquartile_mean():
    runs = made_up(lambda name, seed: 0.5 if name == OURS else 0.2 + 0.1 * seed)
    assert learning.overall(runs, OURS, TASKS).estimate == pytest.approx(0.5)
    ppo = learning.overall(runs, "PPO", TASKS)
    assert ppo.estimate == pytest.approx(0.3)
    assert ppo.low < 0.3 < ppo.high
    assert learning.overall(runs[:10], "PPO", TASKS) is None
    assert [task.score(task.random) for task in TASKS] == [0.0] * 12
    assert [task.score(task.best) for task in TASKS] == [1.0] * 12


def test_the_table_its_markdown_and_its_plot(tmp_path):
    runs = made_up(lambda name, seed: 0.5 if name == OURS else -2.0 if name == "A2C" else 0.2 + 0.1 * seed)
    table = learning.table(runs, TASKS, LEARNERS).as_json()
    assert len(table["rows"]) == 12 * 5 + 5
    text = learning.markdown(table)
    assert text.count("\n") == 2 + 12 + 3 - 1
    assert text.endswith("| seeds | 5 | 3 | 3 | 3 | 3 |")
    assert "| interquartile mean of all scores | 0.50 (0.50 to 0.50) | 0.30" in text
    assert "**" in text
    result = {"tables": [table], "date": "2026-01-02T03:04:05", "machine": {"cpu": "A CPU", "cores": 2, "accelerators": []}}
    (picture,) = tables.plots(result, tmp_path)
    assert picture.stat().st_size > 10_000
    file = tables.store(result, tmp_path)
    assert tables.read(file)["tables"][0]["name"] == "learning"
    readme, (begin, end) = tmp_path / "README.md", tables.LEARNING
    readme.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    tables.write_readme(result, readme)
    assert readme.read_text() == f"before\n{begin}\n{text}\n{end}\nafter\n"


def test_what_is_stored_is_not_run_again(tmp_path, monkeypatch):
    """All learners whose environment exists; our own runs again if the default has changed."""
    tasks, calls = TASKS[:2], []

    def run_one(learner, task, seed, root):
        calls.append((learner.name, task.env, seed))
        about = {"learner": learner.name, "env": task.env, "asked": task.steps, "seed": seed, "settings": learning.ours()}
        return {**about, "sampled": [1.0], "mode": [1.0], "cpu_seconds": 1.0}

    monkeypatch.setattr(learning, "run_one", run_one)
    learning.learning(tmp_path, tmp_path, lambda what: None, tasks)
    assert calls == [(OURS, task.env, seed) for seed in range(5) for task in tasks]  # no other library is installed there
    calls.clear()
    again = learning.learning(tmp_path, tmp_path, lambda what: None, tasks)
    assert calls == []
    more = learning.learning(tmp_path, tmp_path, lambda what: None, TASKS[:3], measure=False)
    assert calls == []
    assert [row.name for row in more.rows] == [row.name for row in again.rows if learning.EVERY not in row.name]
    file = tmp_path / learning.FILE
    first, *rest = file.read_text().splitlines()
    changed = json.loads(first)
    changed["settings"]["K"] = 99
    file.write_text("\n".join([json.dumps(changed), *rest]) + "\n")
    found = learning.learning(tmp_path, tmp_path, lambda what: None, tasks)
    assert calls == [(OURS, tasks[0].env, 0)]
    assert [len(row.values) for row in found.rows[:2]] == [5, 5]


@pytest.mark.slow
def test_our_own_run(tmp_path):
    task = Task("CartPole-v1", 300, 23.7, 500.0)
    learner = Learner(OURS, None, "stormpg_learning.py", (), 1)
    found = learning.run_one(learner, task, 0, tmp_path)
    assert found["steps"] >= 300
    assert len(found["sampled"]) == len(found["mode"]) == 20
    assert np.mean(found["sampled"]) > 9
    assert found["cpu_seconds"] > 0
