"""How Sphinx builds the documentation: ``sphinx-build -W --keep-going docs docs/_build/html``."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "mcpio"
author = "The mcpio developers"
copyright = "The mcpio developers"  # noqa: A001 - Sphinx gives the setting its name
release = version = installed_version("mcpio")

extensions = [
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx.ext.autodoc",
    "contents",
    "pictures",
    "plain_pages",
    "reference",
    "search_index",
    "signatures",
    "stacked_tables",
]
contents_pages = ["index", "reference/index", "decisions/README", "conformance"]
"""The pages whose links make the table of contents."""
exclude_patterns = ["_build", "_ext", "examples"]
nitpicky = True
default_role = "literal"
# The variable in the bases of a generic class is no name that anybody looks up.
nitpick_ignore = [("py:obj", "mcpio.app.pagination.T")]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
public_modules = settings["tool"]["mcpio"]["public-modules"]
"""What the reference must have a page for."""

html_theme = "furo"
html_theme_options = {
    "source_repository": settings["project"]["urls"]["Repository"],
    "source_branch": "main",
    "source_directory": "docs/",
}
html_title = f"mcpio {release}"
html_show_copyright = False
html_static_path = ["_static"]
templates_path = ["_templates"]
html_favicon = "_static/mark.svg"
html_logo = "_static/mark.svg"
html_css_files = ["mcpio.css"]
html_additional_pages = {"search": "search.html"}
html_js_files = [("versions.js", {"defer": "defer"})]
