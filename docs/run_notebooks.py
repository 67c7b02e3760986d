"""Run the notebooks of docs/notebooks from top to bottom and store their outputs in them.

    python -m docs.run_notebooks [NAME ...]

The outputs are part of the files, so that GitHub and the site show them without running anything. `tests/printed` runs all
notebooks with small budgets, and checks that the stored outputs are of the kinds that come out.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 1200  # for one cell


def read(file: Path) -> Any:
    return nbformat.read(file, as_version=4)


def run(notebook: Any, folder: Path) -> Any:
    """Run a notebook in a folder. An exception in a cell is raised."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times of an earlier run
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=SECONDS, startup_timeout=SECONDS, resources=where, record_timing=False).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = merged(cell.outputs)
    return notebook


def merged(outputs: list[Any]) -> list[Any]:
    """Outputs in which text that was printed in several parts is one."""
    found: list[Any] = []
    for one in outputs:
        if found and one.output_type == "stream" == found[-1].output_type and one.name == found[-1].name:
            found[-1].text += one.text
        else:
            found.append(one)
    return found


def main(names: list[str]) -> None:
    for file in NOTEBOOKS:
        if not names or file.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                notebook = run(read(file), Path(folder))
            notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
            nbformat.write(notebook, file)
            print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
