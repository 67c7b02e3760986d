"""Without the packages of an extra, the library works and the command says in one line what to install."""

import subprocess
import sys

import pytest

from stormpg.errors import extra_for, legible

HIDE = "import sys; sys.modules.update(dict.fromkeys({missing}, None)); sys.argv = ['stormpg', *{words}]; "


def run(missing, words, code="from stormpg.__main__ import main; main()"):
    """Run in a process in which some packages cannot be imported."""
    script = HIDE.format(missing=missing, words=words) + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_the_library_needs_no_extra():
    missing = ["typer", "rich", "tomli_w", "scipy", "matplotlib", "plotly", "PIL", "optuna", "gymnasium", "equinox"]
    train = "import stormpg; stormpg.train('lqr', 'storm-pg', trajectories=20, seeds=1); stormpg.Agent('lqr')"
    done = run(missing, [], train)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["typer", "rich", "tomli_w"])
def test_the_command_says_what_it_needs(package):
    done = run([package], ["list"])
    assert done.returncode == 2
    assert done.stderr == f'stormpg: {package} is not installed: pip install "stormpg[cli]".\n'


@pytest.mark.slow
@pytest.mark.parametrize("package", ["scipy", "matplotlib", "plotly"])
def test_a_report_says_what_it_needs(package, tmp_path):
    words = ["compare", "lqr", "--algorithms", "gpomdp", "--trajectories", "30", "--seeds", "2", "--out", str(tmp_path / "c")]
    done = run([package], words)
    assert done.returncode == 2, done.stderr
    assert f'stormpg: {package} is not installed: pip install "stormpg[report]".' in done.stderr


def test_a_missing_package_is_not_a_damaged_file():
    with pytest.raises(ModuleNotFoundError), legible("the content of a run"):
        raise ModuleNotFoundError("no", name="matplotlib")


def test_other_packages_are_not_hidden():
    assert extra_for(ModuleNotFoundError("no", name="nonsense")) is None
