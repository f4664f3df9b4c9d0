"""The one exception that people are meant to read."""

from __future__ import annotations


class BasisError(ValueError):
    """Something the caller gave cannot be used.

    The message is one line that names what is wrong and what is accepted; the command line prints
    it and exits with code 2.
    """
