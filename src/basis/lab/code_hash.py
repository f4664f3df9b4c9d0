"""Hashes of the code that computes a result, so that changed code is never taken for the old one.

Code is compared without comments, docstrings and layout: what does not change a result does not
cost one.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from basis.errors import BasisError

_PACKAGE = Path(__file__).parent.parent
# Messages, file handling, plots and the version change no figure.
_WITHOUT_EFFECT = ("_errors", "_figures", "_files", "_version")
_FOREIGN = ("abc", "builtins", "typing", "torch", "collections")


def code_hash(*rooms: str, package: Path | None = None) -> str:
    """The hash of the source files of rooms and of all rooms that they import.

    Args:
        rooms: Names of subpackages or modules of `basis`, for example "samplers".
        package: The folder of the package; the one that is running by default.
    """
    package = package or _PACKAGE
    files: dict[str, str] = {}
    waiting, known = list(rooms), set(rooms)
    while waiting:
        for path in _room_files(waiting.pop(), package):
            tree = ast.parse(path.read_bytes())
            files[path.relative_to(package).as_posix()] = _normalised(tree)
            found = set(_imported_rooms(tree, package)) - known
            known |= found
            waiting += found
    text = "\n".join(f"# {name}\n{files[name]}" for name in sorted(files))
    return hashlib.sha256(text.encode()).hexdigest()


def own_code(function: Callable[..., Any]) -> str:
    """The hash of the file that a function is written in."""
    try:
        path = inspect.getsourcefile(function)
    except TypeError:
        path = None
    if path is None or not Path(path).is_file():
        return function_code(function)
    return _sha256(_normalised(ast.parse(Path(path).read_bytes())))


def class_code(kind: type) -> str:
    """The hash of the methods that a class has now, its own and those of its bases.

    Unlike the hash of its file it notices a class or a method that was replaced while running.
    """
    parts = []
    for base in kind.__mro__:
        if base.__module__.split(".")[0] in _FOREIGN:
            continue
        for name, member in sorted(vars(base).items()):
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(function, FunctionType) and function.__code__.co_filename != "<string>":
                parts.append(f"{base.__qualname__}.{name} {function_code(function)}")
    return _sha256("\n".join(parts))


def function_code(function: Callable[..., Any]) -> str:
    """The hash of one function's source, or of its bytecode where there is no source."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return _sha256(repr((code.co_code, code.co_consts)) if code else repr(type(function)))
    try:
        return _sha256(_normalised(ast.parse(text)))
    except SyntaxError:  # a lambda in the middle of a call
        return _sha256(text)


def _room_files(room: str, package: Path) -> list[Path]:
    folder, file = package / room, package / f"{room}.py"
    if folder.is_dir():
        return sorted(folder.rglob("*.py"))
    if not file.is_file():
        raise BasisError(f"there is no room {room!r} in the package, whose code is to be hashed")
    return [file]


def _imported_rooms(tree: ast.AST, package: Path) -> Iterator[str]:
    """The rooms of `basis` that a file imports anywhere, but for type checkers alone."""
    for node in _running(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module == "basis":
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("basis."):
            names = [str(node.module).split(".")[1]]
        elif isinstance(node, ast.Import):
            names = [a.name.split(".")[1] for a in node.names if a.name.startswith("basis.")]
        for name in names:
            exists = (package / name).is_dir() or (package / f"{name}.py").is_file()
            if exists and name not in _WITHOUT_EFFECT:
                yield name


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, without what stands under `if TYPE_CHECKING`."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _running(child)


def _normalised(tree: ast.AST) -> str:
    """Source text without comments, layout and strings that are statements of their own."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [s for s in body if not _is_text(s)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_text(statement: ast.AST) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
