"""Small forms of the studies whose sizes are in their code, where no flag reaches them."""

import dataclasses

import pytest


def paper(patch: pytest.MonkeyPatch) -> None:
    """One environment of the paper and one that compiles quickly, two tuned algorithms, and small grids."""
    from stormpg.reproduce import limits, reproduction, robustness, variance
    from stormpg.studies.study import Tuning

    one, _, _, four = reproduction.FIGURES
    patch.setattr(reproduction, "FIGURES", (one, four._replace(env="chain", algorithms=("svrpg", "storm-pg"))))
    patch.setattr(reproduction, "TUNED", ("gpomdp", "storm-pg"))
    patch.setattr(reproduction, "TUNING", {"cartpole-continuous": Tuning(4, 60, 2)})
    patch.setattr(reproduction, "ROBUSTNESS", {"cartpole-continuous": (60, 2)})
    patch.setattr(reproduction, "CHECKPOINTS", {"cartpole-continuous": ((20, 60), 2, 200)})
    patch.setattr(robustness, "RATES", (0.003, 0.01))
    patch.setattr(robustness, "MOMENTA", (0.2, 0.9))
    patch.setattr(robustness, "LOOPS", (3,))
    patch.setattr(robustness, "BATCHES", (5,))
    patch.setattr(variance, "RESAMPLES", 8)
    patch.setattr(limits, "SEEDS", 2)
    patch.setattr(limits, "TRAJECTORIES", 60)


def laboratory(patch: pytest.MonkeyPatch) -> None:
    """`theory all --size small` with one problem. Every number of points, problem and group of settings has its own program."""
    from stormpg.theory import gap, rates
    from stormpg.theory import laboratory as lab

    candidates = rates.candidates
    patch.setitem(lab.SIZES, "small", dataclasses.replace(lab.SIZES["small"], points=2, problems=1))
    patch.setattr(rates, "candidates", lambda *about: candidates(*about)[:1])
    patch.setattr(gap, "METHODS", dict(list(gap.METHODS.items())[:2]))
    patch.setattr(lab, "GROUP", 100)  # large enough to keep all programs


def family(patch: pytest.MonkeyPatch) -> None:
    """`compare --suite family` with two configurations, in this process, which keeps its programs."""
    from stormpg.family import suite
    from stormpg.studies import workers

    patch.setattr(suite, "INSIDE", suite.Size(2, 2, 1))
    patch.setattr(workers, "Processes", workers.ThisMachine)
