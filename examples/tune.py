"""A hyperparameter search in Python with a custom space and trials run in batches. `stormpg tune` offers more options."""

import tempfile
from pathlib import Path

from stormpg.studies.workspace import Workspace
from stormpg.tune import outcome, search
from stormpg.tune.objective import Objective
from stormpg.tune.plan import Problem, Search
from stormpg.tune.space import Range
from stormpg.tune.storage import close, open_study

problem = Problem("chain", "storm-pg", trajectories=100, seeds=tuple(range(8)), horizon=5, objective=Objective("last"))
space = {"eta": Range(0.01, 1.0, log=True), "alpha": Range(0.1, 1.0)}
wanted = Search(problem, space, fixed={"S0": 4, "B": 2}, first={"eta": 0.1, "alpha": 0.9}, trials=16, generation=8)

with tempfile.TemporaryDirectory() as folder:
    study = open_study(f"sqlite:///{folder}/study.db", "example", wanted.about(), problem.objective.direction)
    search.run(Workspace(Path(folder)), wanted, study, alone=True)  # an Optuna study: Optuna's tools can read it
    best = outcome.best_of(study)
    states = [trial.state.name for trial in study.get_trials()]
    print(f"of {len(states)} trials {states.count('PRUNED')} were pruned; the best is number {best.number}: {best.params}")
    close(study)
