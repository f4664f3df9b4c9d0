"""The paper's tables and figures, computed again from scratch with the priors at hand.

Each is a file in `basis/reproduce/tables`; a new file is all that a new one takes.
"""

from basis._figures import Table
from basis.reproduce._code_hash import code_hash
from basis.reproduce._context import Context, MissingRequirement
from basis.reproduce._definition import SIZES, TableDefinition, load_tables
from basis.reproduce._fingerprint import fingerprint
from basis.reproduce._report import build_report, tables_markdown, write_report
from basis.reproduce._result_cache import CachedResult, ResultCache
from basis.reproduce._section import Section

__all__ = [
    "SIZES",
    "CachedResult",
    "Context",
    "MissingRequirement",
    "ResultCache",
    "Section",
    "Table",
    "TableDefinition",
    "build_report",
    "code_hash",
    "fingerprint",
    "load_tables",
    "tables_markdown",
    "write_report",
]
