"""`python -m basis`."""

from basis.cli import main

if __name__ == "__main__":  # worker processes import this file too
    raise SystemExit(main())
