from __future__ import annotations

import os
import re
import sys
import tomllib
import warnings
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

import skdpadmm

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]

project = "skdpadmm"
author = "The skdpadmm developers"
copyright = f"2026, {author}"
version = release = skdpadmm.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "live",
]
# A build needs no network, unless it is asked to link to other projects.
if os.environ.get("INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "joblib": ("https://joblib.readthedocs.io/en/stable", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
    }
templates_path = ["_templates"]
exclude_patterns = ["_build", "auto_examples/**/GALLERY_HEADER.rst"]
default_role = "py:obj"

autosummary_generate = True
autosummary_context = {"exported": skdpadmm.__all__}
add_module_names = False  # each page begins with the import
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # numpydoc's type lines say it better
# The class template lists the members of a class itself, not the ones that it inherits.
numpydoc_show_class_members = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "skdpadmm"
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("auto_examples/index", "benchmarks", "changelog", "figures")}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = html_favicon = "_static/logo.svg"
html_theme_options = {
    "header_links_before_dropdown": 6,
    "show_toc_level": 1,
    "logo": {"text": f"skdpadmm <small>{release}</small>"},
    "icon_links": [
        {"name": "Repository", "url": URLS["Repository"], "icon": "fa-solid fa-code-branch"}
    ],
}
# The one file of MathJax 3.2.2 that draws formulas without fonts or network.
mathjax_path = "mathjax/tex-svg.js"


def from_markdown(text: str) -> str:
    """The Markdown of the changelog as reStructuredText: headings, code, links, lists."""
    text = re.sub(r"(?<!`)`([^`\n]+)`(?!`)", r"``\1``", text)
    text = re.sub(r"\[([^]]+)\]\((http[^)]+)\)", r"`\1 <\2>`__", text)
    for marks, underline in (("###", "~"), ("##", "-"), ("#", "=")):
        text = re.sub(
            rf"^{marks} (.+)$",
            lambda found, line=underline: f"{found[1]}\n{line * len(found[1])}",
            text,
            flags=re.MULTILINE,
        )
    return text


def read_changelog(app, docname: str, source: list[str]) -> None:
    """The page of the changelog is CHANGELOG.md."""
    if docname == "changelog":
        changelog = ROOT / "CHANGELOG.md"
        app.env.note_dependency(str(changelog))
        source[0] = from_markdown(changelog.read_text(encoding="utf-8"))


def setup(app) -> None:
    app.connect("source-read", read_changelog)


SECTIONS = ("first_steps", "data", "agents", "studies", "extending")


def warning_without_path(message, category, filename, lineno, line=None):
    return f"{category.__name__}: {message}\n"


# What the pages of examples show of a warning does not depend on where they are built.
warnings.formatwarning = warning_without_path

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"quickstart|__init__",
    "subsection_order": ExplicitOrder([f"../examples/{name}" for name in SECTIONS]),
    "within_subsection_order": "ExampleTitleSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    "min_reported_time": 60,
    "reset_modules": ("matplotlib", "live.gallery_style"),
    "image_srcset": ["2x"],
    "thumbnail_size": (560, 392),
    "download_all_examples": False,
    "remove_config_comments": True,
    "nested_sections": True,
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("skdpadmm",),
}
