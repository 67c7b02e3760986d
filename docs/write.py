"""Write everything in the documentation that comes from the code or from stored results.

    python -m docs.write [FOLDER]

FOLDER is that of `stormpg compare --suite family`, whose results are then stored in docs/family. Without it, the stored ones
are used. `tests/test_written_pages.py` checks that nothing is out of date.
"""

import sys
from pathlib import Path

from docs import write_algorithms, write_choose, write_family, write_glossary, write_readme
from docs.markdown import marked


def texts() -> dict[Path, str]:
    """All files that are written, with their content."""
    found: dict[Path, str] = dict(write_algorithms.pages())
    for writer in (write_algorithms, write_family, write_choose, write_glossary, write_readme):
        for part in writer.parts():
            text = found.get(part.file) or part.file.read_text(encoding="utf-8")
            found[part.file] = marked(text, part.name, part.content)
    return found


def main() -> None:
    if len(sys.argv) > 1:
        write_family.store(Path(sys.argv[1]))
    for file, text in texts().items():
        file.write_text(text, encoding="utf-8")
    if len(sys.argv) > 1:
        write_algorithms.draw_all()


if __name__ == "__main__":
    main()
