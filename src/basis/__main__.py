"""`python -m basis`."""

from __future__ import annotations

from basis.cli import main

if __name__ == "__main__":  # worker processes import this file too
    raise SystemExit(main())
