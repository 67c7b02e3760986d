"""Install the distributions in dist/ into empty environments, outside the repository, and try them. Called by `make package`.

First the wheel without extras: the library trains, and the command says in one line what it needs. Then with [cli], [report],
and [all]. Then a wheel is built from the source distribution and installed: it must have the same files. rattler-build must
accept the conda recipe.
"""

import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST, RECIPE = ROOT / "dist", ROOT / "conda" / "recipe.yaml"
TRAIN = "import stormpg; print(stormpg.__file__, stormpg.train('lqr', 'storm-pg', trajectories=60, seeds=2).final_return())"


def relative_links(text: str) -> list[str]:
    """The targets of all links and images of a Markdown text that work only inside the repository."""
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"""\b(?:src|href)=["']([^"']+)["']""", text)
    return [target for target in targets if not re.match(r"[a-z]+:|#", target)]


def files_of(wheel: Path) -> set[str]:
    """The names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as content:
        return set(content.namelist())


def check_description(wheel: Path) -> None:
    """Stop if the description for PyPI has relative links."""
    with zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        description = content.read(name).decode().partition("\n\n")[2]
    if not description or relative_links(description):
        sys.exit(f"the description in {wheel.name} is empty or has relative links: {relative_links(description)}")


def run(place: Path, *words: str, code: int = 0) -> str:
    """Run a command in a folder and return what it prints. Stop if its exit code is another one."""
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode != code:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}, expected {code}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def try_wheel(wheel: Path, place: Path) -> str:
    """Install the wheel with more and more extras. Returns what was tried."""
    venv.create(place / "env", with_pip=True)
    python, command = str(place / "env" / "bin" / "python"), str(place / "env" / "bin" / "stormpg")
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(place, *install, str(wheel))
    where = run(place, python, "-c", TRAIN)
    assert str(place) in where, f"another stormpg was imported: {where}"
    needs = run(place, command, "list", code=2)
    assert "stormpg[cli]" in needs, needs
    run(place, *install, f"{wheel}[cli]")
    run(place, command, "train", "lqr", "--trajectories", "30", "--seeds", "2", "--out", "run")
    needs = run(place, command, "report", "run", "--out", "page", code=2)
    assert "stormpg[report]" in needs, needs
    run(place, *install, f"{wheel}[cli,report]")
    run(place, command, "report", "run", "--out", "page2")
    page = place / "page2" / "report.html"
    run(place, *install, f"{wheel}[all]")
    run(place, command, "train", "gym:CartPole-v1", "--steps", "500", "--seeds", "1")
    size = sum(file.stat().st_size for file in (place / "env").rglob("*") if file.is_file() and not file.is_symlink())
    version = run(place, command, "--version").strip()
    return (
        f"{version} works without extras, with [cli], [cli,report] and [all]; a page has {page.stat().st_size / 1e6:.1f} MB, "
        f"an environment with [all] {size / 1e6:.0f} MB."
    )


def try_source(source: Path, wheel: Path, place: Path) -> str:
    """Build a wheel from the source distribution, as pip does, and install it."""
    venv.create(place / "env", with_pip=True)
    pip = (str(place / "env" / "bin" / "python"), "-m", "pip")
    run(place, *pip, "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", "built", str(source))
    (built,) = (place / "built").glob("*.whl")
    if files_of(built) != files_of(wheel):
        sys.exit(f"{source.name} and {wheel.name} have different files: {sorted(files_of(built) ^ files_of(wheel))[:10]}")
    run(place, *pip, "install", "--quiet", "--disable-pip-version-check", "--no-deps", str(built))
    return f"{source.name} installs, with the same {len(files_of(built))} files."


def check_recipe() -> str:
    """Read and render the conda recipe as rattler-build does before it builds. An error names the field."""
    from rattler_build import Stage0Recipe, VariantConfig

    (variant,) = Stage0Recipe.from_file(RECIPE).render(VariantConfig())
    return f"rattler-build accepts {RECIPE.parent.name}/{RECIPE.name}: {variant}."


def main() -> None:
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    for file in (wheel, source):
        print(f"{file.name}: {file.stat().st_size / 1e3:.0f} kB")
    check_description(wheel)
    print(check_recipe(), flush=True)
    for check in (lambda place: try_wheel(wheel, place), lambda place: try_source(source, wheel, place)):
        with tempfile.TemporaryDirectory() as folder:
            print(check(Path(folder).resolve()), flush=True)


if __name__ == "__main__":
    main()
