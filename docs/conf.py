"""How Sphinx builds the site: ``tox -e docs``. Nothing is fetched from the network."""

import streammach

project = "streammach"
author = "The streammach developers"
release = version = streammach.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_click",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings give types, with shapes and units
autosummary_generate = False
numpydoc_show_class_members = False
html_theme = "furo"
html_title = f"streammach {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
pygments_dark_style = "github-dark"
smartquotes = False  # two dashes are an option
