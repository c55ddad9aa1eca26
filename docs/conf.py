from __future__ import annotations

import skdpadmm

project = "skdpadmm"
author = "The skdpadmm developers"
copyright = f"2026, {author}"
version = release = skdpadmm.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
]
templates_path = ["_templates"]
exclude_patterns = ["_build"]
default_role = "py:obj"

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's type lines say it better
# The class template lists the members of a class itself, not the ones that it inherits.
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = "skdpadmm"
html_show_sourcelink = False
