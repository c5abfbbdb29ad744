"""Configuration of the documentation site; `make docs` builds it without a network."""

import os
import sys
from pathlib import Path

import relunmd
from relunmd._registry import ALGORITHMS

sys.path.append(str(Path(__file__).parent))  # For gallery_order.

project = "relunmd"
copyright = "the relunmd developers"  # noqa: A001
author = "the relunmd developers"
version = release = relunmd.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_click",
    "sphinx_gallery.gen_gallery",
    "sphinxext.opengraph",
]
exclude_patterns = ["_build", "requirements.txt", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = "py:obj"
smartquotes = False  # Options such as --rank keep their two hyphens.

# API pages: numpydoc sections, one generated page for each public name.
autosummary_generate = True
autodoc_typehints = "none"  # The docstrings have the types.
autosummary_context = {"settings_alone": [path.partition(".")[2] for path in ALGORITHMS]}
numpydoc_show_class_members = False

# Inventories of other projects need a network, so their links are optional.
intersphinx_mapping = {}
if os.environ.get("RELUNMD_DOCS_INTERSPHINX"):
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "dask": ("https://docs.dask.org/en/stable", None),
    }

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "gallery_order.GalleryOrder",
    "write_computation_times": False,
    "backreferences_dir": "api/backreferences",
    "doc_module": ("relunmd",),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "plot_gallery": os.environ.get("RELUNMD_DOCS_GALLERY", "1") != "0",
    "show_memory": False,
    "show_signature": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"relunmd {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_show_sourcelink = False
html_baseurl = os.environ.get("RELUNMD_DOCS_URL", "")
html_theme_options = {
    "logo": {"text": "relunmd"},
    "navbar_align": "left",
    "header_links_before_dropdown": 5,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "back_to_top_button": True,
}
html_context = {"default_mode": "auto"}
_ALONE = "getting_started command_line when_to_use coming_from papers benchmarks contributing changelog glossary"
html_sidebars = {page: [] for page in _ALONE.split()}  # Pages without subpages need no navigation of their section.

ogp_site_url = html_baseurl
ogp_site_name = "relunmd"
ogp_social_cards = {"enable": False}
ogp_use_first_image = True


def setup(app):
    """Show the defaults of the command's options, and its examples as code."""
    from relunmd.cli import main

    for command in [main, *main.commands.values()]:
        for option in command.params:
            if type(option.default) in (int, float, str):
                option.show_default = True
    app.connect("sphinx-click-process-epilog", _format_epilog)


def _format_epilog(app, context, lines):
    """Turn the line block of an epilog into a code block of examples and plain text."""
    texts = [line.removeprefix("|").strip() for line in lines]
    commands = [text for text in texts if text.startswith("relunmd ") and "--help describes" not in text]
    rest = [text for text in texts if text not in (*commands, "Examples:")]
    code = [".. rubric:: Examples", "", ".. code-block:: bash", "", *(f"   {text}" for text in commands), ""]
    lines[:] = (code if commands else []) + rest
