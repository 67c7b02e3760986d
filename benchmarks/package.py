"""Install the wheel in dist/ into an empty environment, outside the repository, and try it. Called by `make package`.

First without extras: the library trains, and the command says in one line what it needs. Then with the command and reports.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

DIST = Path(__file__).resolve().parents[1] / "dist"
TRAIN = "import stormpg; print(stormpg.__file__, stormpg.train('lqr', 'storm-pg', trajectories=60, seeds=2).final_return())"


def main() -> None:
    (wheel,) = DIST.glob("*.whl")
    for file in sorted(DIST.iterdir()):
        print(f"{file.name}: {file.stat().st_size / 1e3:.0f} kB")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "env", with_pip=True)
        python = str(place / "env" / "bin" / "python")

        def run(*words: str, code: int = 0) -> str:
            done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
            if done.returncode != code:
                sys.exit(f"{' '.join(words)} ended with {done.returncode}, expected {code}:\n{done.stdout}{done.stderr}")
            return done.stdout + done.stderr

        install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*install, str(wheel))
        where = run(python, "-c", TRAIN)
        assert str(place) in where, f"another stormpg was imported: {where}"
        needs = run(str(place / "env" / "bin" / "stormpg"), "list", code=2)
        assert "stormpg[cli]" in needs, needs
        run(*install, f"{wheel}[cli]")
        command = str(place / "env" / "bin" / "stormpg")
        run(command, "train", "lqr", "--trajectories", "30", "--seeds", "2", "--out", "run")
        needs = run(command, "report", "run", "--out", "page", code=2)
        assert "stormpg[report]" in needs, needs
        run(*install, f"{wheel}[cli,report]")
        run(command, "report", "run", "--out", "page2")
        page = place / "page2" / "report.html"
        print(
            f"{run(command, '--version').strip()} works without extras, with [cli] and with [cli,report]; "
            f"a page has {page.stat().st_size / 1e6:.1f} MB."
        )


if __name__ == "__main__":
    main()
