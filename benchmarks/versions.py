"""Run a smoke test on Python 3.11, 3.12 and 3.13, each with the lowest versions that pyproject.toml allows and the newest.

python -m benchmarks.versions [--write docs/versions.md]        (`make versions`)

Each combination has its own environment in .versions/. The Pythons are searched for on the PATH and in pyenv.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("cli", "report", "gym", "tune")
TESTING = ("pytest", "hypothesis", "equinox")  # the packages of the dev extra that the exact tests need
SHOWN = ("jax", "numpy", "optax", "scipy", "polars", "typer", "gymnasium")
EXACT = ("test_estimators.py", "test_trackers.py", "engine", "test_scores.py", "studies/test_statistics.py")

STEPS = {
    "import": "import stormpg, stormpg.cli",
    "train, resume": """
import stormpg
job = dict(env='cartpole-continuous', algorithm=stormpg.storm_pg(S0=4, B=2), trajectories=2000, seeds=3, horizon=10, out='run')
assert not stormpg.train(**job, progress=lambda now: False).complete
assert stormpg.train(**job, resume=True).complete
""",
    "report": """
import sys; from stormpg import cli
sys.argv = ['stormpg', 'compare', 'pendulum', '--trajectories', '60', '--seeds', '3', '--horizon', '10', '--out', 'study']
try: cli.main()
except SystemExit as end: assert not end.code, end.code
sys.argv = ['stormpg', 'report', 'run', '--out', 'page']
try: cli.main()
except SystemExit as end: assert not end.code, end.code
""",
    "Agent": """
import stormpg
agent = stormpg.Agent('gym:CartPole-v1').learn(steps=500)
agent.save('agent'); again = stormpg.Agent.load('agent')
assert again.predict([0.0, 0.0, 0.1, 0.0]) in (0, 1); assert len(again.evaluate(3).returns) == 3
again.learn(steps=200)
""",
    "tune": """
import sys; from stormpg import cli
sys.argv = ['stormpg', 'tune', 'cartpole-continuous', '--trials', '4', '--generation', '4', '--seeds', '2',
            '--fresh-seeds', '2', '--trajectories', '60', '--horizon', '10', '--out', 'tuned']
try: cli.main()
except SystemExit as end: assert not end.code, end.code
""",
}


def lowest() -> list[str]:
    """The lower bound of every direct dependency, as a constraint."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    wanted += [line for line in extras["dev"] if name_of(line) in TESTING]
    return [re.sub(r"\[.*?\]", "", line).replace(">=", "==").strip() for line in wanted]


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=;! ]", requirement)[0]


def python(version: str) -> str | None:
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "-c", "pass"], capture_output=True).returncode == 0:  # a shim of pyenv may fail
        return found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return next((str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)), None)


def combination(version: str, resolution: str) -> list[str]:
    """A row of the table: Python, resolution, versions, and the outcome of each step."""
    found = python(version)
    if found is None:
        return [version, resolution, *["not found"] * (len(SHOWN) + len(STEPS) + 1)]
    folder = ROOT / ".versions" / f"{version}-{resolution}"
    binary = folder / "bin" / "python"
    pip = [str(binary), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([found, "-m", "venv", "--clear", str(folder)], check=True)
        limits = Path(work) / "constraints.txt"
        limits.write_text("\n".join(lowest() if resolution == "lowest" else ()))
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        testing = [line for line in project["optional-dependencies"]["dev"] if name_of(line) in TESTING]
        words = [*pip, "--constraint", str(limits), "--editable", f"{ROOT}[{','.join(EXTRAS)}]", *testing]
        installed = subprocess.run(words, capture_output=True, text=True)
        if installed.returncode:
            print(installed.stdout, installed.stderr, file=sys.stderr)
            return [version, resolution, *["–"] * len(SHOWN), *["not installed"] * (len(STEPS) + 1)]
        ask = f"from importlib.metadata import version; print(*(version(name) for name in {SHOWN}))"
        versions = subprocess.run([str(binary), "-c", ask], capture_output=True, text=True, check=True).stdout.split()
        steps = {name: [str(binary), "-c", code] for name, code in STEPS.items()}
        steps["exact tests"] = [str(binary), "-m", "pytest", "-q", *(str(ROOT / "tests" / name) for name in EXACT)]
        return [version, resolution, *versions, *(outcome(name, words, work) for name, words in steps.items())]


def outcome(name: str, words: list[str], work: str) -> str:
    began = time.monotonic()
    done = subprocess.run(words, cwd=work, capture_output=True, text=True)
    if done.returncode:
        print(f"{name}: exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}", file=sys.stderr)
        return f"**failed ({done.returncode})**"
    return f"ok, {time.monotonic() - began:.0f} s"


def main() -> None:
    heads = ["Python", "versions", *SHOWN, *STEPS, "exact tests"]
    lines = [heads, ["---"] * len(heads)]
    for version in PYTHONS:
        for resolution in ("lowest", "newest"):
            lines.append(combination(version, resolution))
            print(" | ".join(lines[-1]), flush=True)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    if sys.argv[1:2] == ["--write"]:
        file = Path(sys.argv[2])
        text = file.read_text() if file.exists() else "# Versions\n\n<!-- table -->\n<!-- end of table -->\n"
        before, after = text.split("<!-- table -->")[0], text.split("<!-- end of table -->")[1]
        file.write_text(f"{before}<!-- table -->\n{table}\n<!-- end of table -->{after}")
    sys.exit(any("failed" in cell or "not installed" in cell or cell == "not found" for line in lines for cell in line))


if __name__ == "__main__":
    main()
