"""What the command says about itself: help, completion, the settings of a run; and that its defaults are those of Python."""

import inspect
import re

import pytest

import stormpg
from stormpg.algorithms.registry import defaults_of
from stormpg.algorithms.settings import SETTINGS
from stormpg.cli import training
from stormpg.cli.help import PANELS, SEARCH, setting_help
from stormpg.cli.render import render_command
from stormpg.envs import ENVIRONMENTS
from stormpg.errors import InputError
from stormpg.films.render import render
from stormpg.policies.constructors import KINDS
from stormpg.runs.checkpoints import CheckpointInterval
from stormpg.runs.logs import LOGGERS
from stormpg.runs.options import Job


def test_help_says_what_a_setting_is():
    assert setting_help("gamma") == "γ: discount (above 0 to 1)."
    assert setting_help("sigma") == "σ: standard deviation of a Gaussian policy (>0)."
    assert setting_help("floor").endswith(r"(0 to 1). \[is-mbpg, is-mbpg-star, ha-mbpg]")
    assert setting_help("exact").startswith("Evaluate the correction on the same batch (off: --no-exact)")


def test_the_command_says_what_it_runs():
    """Settings of the algorithm and of the policy, and where they are not the defaults of Python."""
    asked = {"env": "rllab-mountain-car", "algorithm": "storm-pg", "eta": "0.02", "trajectories": "50", "hidden": "8,8"}
    first, algorithm, policy, source = Job(asked).words().splitlines()
    assert first == "storm-pg on rllab-mountain-car, 30 seeds of 50 trajectories"
    assert algorithm.startswith("Algorithm: eta=0.02 alpha=0.79 S0=10 B=5 gamma=0.99 baseline=time")
    assert policy == "Policy: gaussian-mlp hidden=8,8 sigma=1 learn_sigma=False"
    assert source == "From the paper's table: B=5 S0=10 alpha=0.79 gamma=0.99; the defaults in Python: alpha=0.9"
    own = Job({"env": "pendulum", "steps": "500", "seeds": "1"}).words()
    assert own.startswith("window-npg on pendulum, 1 seed of 500 steps\nAlgorithm: K=16")
    assert "sigma_step=0.02" in own
    assert "paper" not in own
    assert "4000 trajectories" in Job({"env": "pendulum"}).words()


def test_the_command_has_the_defaults_of_python():
    """Each default of a command that Python has too; `train` differs only by the paper's tables, and says so."""
    python = lambda function: {name: p.default for name, p in inspect.signature(function).parameters.items()}
    job, train = Job({"env": "pendulum"}), python(stormpg.train)
    assert job.algorithm.name == train["algorithm"]
    assert all(getattr(job, key) == train[key] for key in ("seeds", "seed", "horizon", "trajectories", "steps"))
    assert job.algorithm == stormpg.make_algorithm(train["algorithm"])
    assert CheckpointInterval(python(training.train_command)["checkpoint_seconds"], None) == train["checkpoint"]
    evaluate, same = python(stormpg.evaluate), python(training.evaluate_command)
    assert all(same[key] == evaluate[key] for key in ("episodes", "seed", "deterministic"))
    film = python(render)
    made = python(render_command)
    assert (made["which"], made["sampled"], made["fps"]) == (film["which"], not film["deterministic"], film["fps"])
    for name, make in stormpg.ALGORITHMS.items():
        own = Job({"env": "lqr", "algorithm": name}).algorithm.settings
        assert own == defaults_of(make), name
    told = " ".join(inspect.getdoc(training.train_command).split())
    assert "on the paper's tasks those of its Tables 2 and 3" in told


def test_a_switch_can_be_set_off(command, monkeypatch):
    asked = []

    def stop(**arguments):
        asked.append(arguments["algorithm"][0].settings["exact"])
        raise InputError("enough")

    monkeypatch.setattr(training, "run_training", stop)
    for flags in ((), ("--exact",), ("--no-exact",)):
        command("train", "chain", "--algorithm", "mars-pg", *flags)
    assert asked == [True, True, False]
    code, _, err = command("train", "chain", "--algorithm", "mars-pg", "--no-exact", "--exact")
    assert code == 2
    assert "--exact and --no-exact are both given" in err


@pytest.mark.parametrize("words", ["", "train", "tune", "compare", "reproduce", "bench", "evaluate", "theory advise"])
def test_help_fits_into_80_columns(words, command, monkeypatch):
    """Every name is whole, choices are listed, and no line is longer."""
    monkeypatch.setenv("COLUMNS", "80")
    code, text, _ = command(*words.split(), "--help")
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "<bool>" not in text
    if words == "train":
        told = " ".join(text.replace("│", " ").split())
        for name in (*stormpg.ALGORITHMS, *ENVIRONMENTS, *KINDS, *LOGGERS):
            assert re.search(rf"(?<![\w-]){name}(?![\w-])", told), name
        panels = re.findall(r"^╭─ (.*?) ─+╮$", text, re.MULTILINE)
        assert panels == ["Arguments", *(panel for panel in PANELS if panel != SEARCH)]
        assert all(f"--{name.replace('_', '-')} " in text for name in SETTINGS)


def test_a_shell_completes_names(command, monkeypatch):
    monkeypatch.setenv("_STORMPG_COMPLETE", "complete_bash")

    def completed(words):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        return command()[1].split()

    assert completed("stormpg tr") == ["train"]
    assert completed("stormpg train mountain") == ["mountain-car-continuous"]
    assert completed("stormpg train lqr --algorithm storm-") == ["storm-pg", "storm-plus", "storm-npg"]
