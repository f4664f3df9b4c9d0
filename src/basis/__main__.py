"""`python -m basis`."""

from basis.cli import main

raise SystemExit(main())
