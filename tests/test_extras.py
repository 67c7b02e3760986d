"""Without the packages of an extra, the library works and the command says in one line what to install."""

import json
import subprocess
import sys

import pytest

from stormpg.errors import extra_for, legible

HIDE = "import sys; sys.modules.update(dict.fromkeys({missing}, None)); sys.argv = ['stormpg', *{words}]; "

# One process runs many commands, because importing JAX takes most of the time.
MANY = """
import contextlib, io, json
from stormpg.__main__ import main
from stormpg.report.terminal import err
answers = []
for words in {commands}:
    sys.argv = ["stormpg", *words.split()]
    said = io.StringIO()
    err.file = said
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code
    answers.append((code, said.getvalue()))
print(json.dumps(answers))
"""

# A command that needs an extra.
LAZY = {
    "gym": "train gym:CartPole-v1",
    "envpool": "train envpool:CartPole-v1",
    "box2d": "train box2d:cartpole",
    "gymnax": "train gymnax:CartPole-v1",
    "brax": "train brax:ant",
    "tensorboard": "train lqr --log tensorboard --out log",
    "wandb": "train lqr --log wandb --out log",
    "mlflow": "train lqr --log mlflow --out log",
    "tune": "tune lqr --trials 2 --out tuned",
    "dashboard": "tune lqr --trials 2 --dashboard --out tuned",
    "ray": "compare lqr --workers ray --out study",
}
PACKAGES = [
    "gymnasium",
    "Box2D",
    "envpool",
    "gymnax",
    "brax",
    "tensorboardX",
    "wandb",
    "mlflow",
    "optuna",
    "optuna_dashboard",
    "ray",
]
STUDIES = ("compare lqr --out study", "reproduce --out study", "theory all --out study", "tune lqr --out study")


def run(missing, words, code="from stormpg.__main__ import main; main()", where=None):
    """Run in a process in which some packages cannot be imported."""
    script = HIDE.format(missing=missing, words=words) + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=where)


def run_many(missing, commands, where):
    """The exit code and the errors of every command."""
    done = run(missing, [], MANY.format(commands=list(commands)), where)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_library_needs_no_extra():
    missing = ["typer", "rich", "tomli_w", "scipy", "matplotlib", "PIL", "optuna", "gymnasium", "equinox"]
    train = "import stormpg; stormpg.train('lqr', 'storm-pg', trajectories=20, seeds=1); stormpg.Agent('lqr')"
    done = run(missing, [], train)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["typer", "rich", "tomli_w"])
def test_the_command_says_what_it_needs(package):
    done = run([package], ["list"])
    assert done.returncode == 2
    assert done.stderr == f'stormpg: {package} is not installed: pip install "stormpg[cli]".\n'


def test_every_command_says_what_it_needs(tmp_path):
    answers = run_many(PACKAGES, LAZY.values(), tmp_path)
    for extra, (code, said) in zip(LAZY, answers, strict=True):
        assert code == 2, (extra, said)
        assert said.startswith("stormpg: ")
        assert said.count("\n") == 1, said
        assert f"stormpg[{extra}]" in said, said


def test_environments_of_gymnasium_name_the_extra(tmp_path):
    tasks = {"box2d": "train gym:LunarLander-v3", "mujoco": "train gym:Hopper-v5"}
    for extra, (code, said) in zip(tasks, run_many(["Box2D", "mujoco"], tasks.values(), tmp_path), strict=True):
        assert code == 2
        assert said.endswith(f'needs a package that is not installed: pip install "stormpg[{extra}]".\n'), said
        assert said.count("\n") == 1, said


def test_export_and_video_say_what_they_need(tmp_path):
    code = """
import stormpg
from stormpg.films.formats import ffmpeg
for make in (lambda: stormpg.Agent('lqr').export_onnx('policy.onnx'), ffmpeg):
    try: make()
    except stormpg.errors.InputError as error: print(error)
"""
    done = run(["onnx", "imageio_ffmpeg"], [], code, tmp_path)
    exported, filmed = done.stdout.splitlines()
    assert "stormpg[onnx]" in exported
    assert "stormpg[video]" in filmed


@pytest.mark.parametrize("package", ["scipy", "matplotlib"])
def test_a_study_says_what_it_needs_before_it_trains(package, tmp_path):
    for words, (code, said) in zip(STUDIES, run_many([package], STUDIES, tmp_path), strict=True):
        assert code == 2, (words, said)
        assert said == f'stormpg: {package} is not installed: pip install "stormpg[report]".\n', words
    assert not (tmp_path / "study").exists()


def test_a_missing_package_is_not_a_damaged_file():
    with pytest.raises(ModuleNotFoundError), legible("the content of a run"):
        raise ModuleNotFoundError("no", name="matplotlib")


def test_other_packages_are_not_hidden():
    assert extra_for(ModuleNotFoundError("no", name="nonsense")) is None
