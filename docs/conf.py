"""How the documentation site is built: `make docs` writes it to build/docs/."""

from docutils.utils.math.latex2mathml import tex2mathml

import evoem

project = "evoem"
author = "The evoem developers"
version = release = evoem.__version__
copyright = author

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]

# Pages are Markdown, and read well without being built. Links to headings are GitHub's.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]

autosummary_generate = True
numpydoc_show_class_members = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # shapes and types are in the docstrings

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "thumbnail_size": (640, 230),
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
    "write_computation_times": False,  # its page loads scripts from elsewhere
}

html_theme = "furo"
html_title = "evoem"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"sidebar_hide_name": False}
templates_path = []
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]


def _inline(self, node):
    self.body.append(tex2mathml(node.astext(), as_block=False))
    raise _skip()


def _block(self, node):
    self.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise _skip()


def _skip():
    from docutils import nodes

    return nodes.SkipNode()


def setup(app):
    """Formulas as MathML, which browsers show by themselves: nothing is loaded from elsewhere."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))


html_math_renderer = "mathml"
