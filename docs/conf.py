"""The configuration of Sphinx: `make docs` builds the site in .venv/site.

Nothing is loaded from other servers: formulas are MathML, fonts are those of the system, and the
search runs in the page.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "_extensions"), str(Path(__file__).parents[1] / "src")]

from basis import __version__  # noqa: E402

project = "basis-separation"
author = "The basis-separation authors"
copyright = "the basis-separation authors, MIT license"
version = release = __version__

extensions = [
    "myst_nb",
    "mathml",
]
exclude_patterns = ["_extensions"]

# Markdown: formulas between dollars, as on GitHub, and links to headings.
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_block"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
html_math_renderer = "mathml"

# Notebooks are shown with their stored output; the tests run them.
nb_execution_mode = "off"

smartquotes = False

html_theme = "furo"
html_title = f"basis-separation {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
