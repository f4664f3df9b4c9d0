"""How Sphinx builds the site: `make docs` writes it to .venv/site.

Nothing is fetched from outside, neither when the site is built nor when it is read: formulas are
MathML, fonts are the reader's own, and the search runs in the page.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "_extensions"), str(Path(__file__).parents[1] / "src")]

from basis import __version__  # noqa: E402 (of this checkout)

project = "basis-separation"
author = "The basis-separation authors"
copyright = "the basis-separation authors, MIT licence"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docstrings",
    "mathml",
    "rooms",
]
exclude_patterns = ["_extensions"]
default_role = "py:obj"  # of names in single backticks in docstrings

# A field that several classes have is a link in the tables of none of them, and no mistake.
suppress_warnings = ["ref.python"]

# Markdown: formulas between dollars, as GitHub shows them, and links to headings.
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_block"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
html_math_renderer = "mathml"

# Notebooks are shown as they are stored; the tests run them.
nb_execution_mode = "off"

smartquotes = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shapes"]
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"basis-separation {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
