"""What surrounds the code when it is installed elsewhere: addresses, README, conda recipe, Dockerfile, workflows."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from benchmarks.package import relative_links

from stormpg.version import __version__

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
HOME = PROJECT["urls"]["Homepage"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CONDA_NAMES = {"matplotlib": "matplotlib-base"}  # the one without a Qt window


def recipe():
    text = (ROOT / "conda" / "recipe.yaml").read_text()
    context = yaml.safe_load(text)["context"]
    return yaml.safe_load(re.sub(r"\$\{\{ (\w+) \}\}", lambda name: context.get(name[1], name[0]), text))


def required(extra):
    """The requirements of an extra, with those of the extras that it names."""
    for line in PROJECT["optional-dependencies"][extra]:
        own = re.fullmatch(r"stormpg\[(.*)\]", line)
        if own is None:
            yield line
        else:
            for name in own[1].split(","):
                yield from required(name)


def as_conda(line):
    name, sign, version = re.fullmatch(r"([\w-]+)(?:(>=)(.*))?", line).groups()
    return f"{CONDA_NAMES.get(name, name)} {sign}{version}" if sign else name


def test_the_recipe_has_the_dependencies_of_the_package():
    needs = recipe()["requirements"]
    python = f"python {PROJECT['requires-python']}"
    assert sorted(needs["run"]) == sorted([python, *map(as_conda, [*PROJECT["dependencies"], *required("all")])])
    assert set(map(as_conda, SETTINGS["build-system"]["requires"])) <= set(needs["host"])


def test_the_recipe_describes_the_package():
    content = recipe()
    (command,) = PROJECT["scripts"].items()
    assert content["build"]["python"]["entry_points"] == [" = ".join(command)]
    about = content["about"]
    assert about["summary"] == PROJECT["description"]
    assert about["license"] == PROJECT["license"]
    assert (about["homepage"], about["documentation"]) == (HOME, PROJECT["urls"]["Documentation"])


def test_every_file_gives_the_same_version():
    assert recipe()["package"]["version"] == __version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__


def test_every_address_is_of_the_same_repository():
    owner, name = HOME.removeprefix("https://github.com/").split("/")
    assert PROJECT["urls"]["Documentation"] == f"https://{owner}.github.io/{name}/"
    for key in ("Repository", "Changelog", "Issues"):
        assert PROJECT["urls"][key].startswith(HOME)
    text = (ROOT / "pyproject.toml").read_text() + (ROOT / "conda" / "recipe.yaml").read_text()
    found = set(re.findall(r"https://(?:github\.com|raw\.githubusercontent\.com)/([\w-]+/[\w-]+)", text))
    assert found == {f"{owner}/{name}", "prefix-dev/recipe-format"}


def test_the_readme_on_pypi_has_no_relative_link():
    text = (ROOT / "README.md").read_text()
    before = relative_links(text)
    assert before  # README.md itself has them, for readers of the repository
    assert [path for path in before if not (ROOT / path.partition("#")[0]).exists()] == []
    for change in SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert relative_links(text) == []


def test_the_image_is_built_from_files_that_docker_sees():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    text = (ROOT / "Dockerfile").read_text()
    copied = {word for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for word in line.split()}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
    assert re.findall(r"^(?:USER|ENTRYPOINT) .*$", text, re.M) == ["USER 1000", 'ENTRYPOINT ["stormpg"]']


def test_the_workflows_follow_the_schema():
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_the_workflows_run_what_exists(file):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    jobs = yaml.safe_load(file.read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert {match for step in steps for match in re.findall(r"\bmake ([\w-]+)", step.get("run", ""))} <= targets
    assert all(re.search(r"@(v\d+|release/v\d+)$", step["uses"]) for step in steps if "uses" in step)


def test_the_tests_run_on_every_python_of_the_package():
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    assert tests["jobs"]["check"]["strategy"]["matrix"]["python"] == named


@pytest.mark.parametrize("script", sorted(file.stem for file in (ROOT / "benchmarks").glob("[a-z]*.py")))
def test_a_script_of_benchmarks_finds_what_it_imports(script):
    """They take minutes, so the tests do not run them."""
    importlib.import_module(f"benchmarks.{script}")
