"""`python -m stormpg` is the command `stormpg`."""

from stormpg.cli import main

if __name__ == "__main__":
    main()
