# SPDX-License-Identifier: Apache-2.0
"""The configuration of Sphinx, which builds this folder as a site: `./dev docs`."""

import configparser
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "doc" / "ext")]

from generate import files, schemas  # noqa: E402 - found by what the line above adds

files.write(ROOT, schemas.files())  # to which notifications.md links

_setup = configparser.RawConfigParser()
_setup.read(ROOT / "setup.cfg")

project = "GSaaS"
version = release = _setup["metadata"]["version"]
copyright = "the GSaaS contributors"

extensions = [
    "myst_parser",
    "openstackdocstheme",
    "oslo_config.sphinxext",
    "oslo_policy.sphinxext",
    "cliff.sphinxext",
    "api_reference",
    "program_reference",
    "release_notes",
    "repository_links",
]
exclude_patterns = ["ext", "_templates", "_static"]
templates_path = ["_templates"]  # instead of those of the theme with the same names
html_static_path = ["_static"]
html_css_files = ["site.css"]
# The options of every command that prints something.
autoprogram_cliff_ignored = [
    *("-h", "--help", "-f", "--format", "-c", "--column", "--noindent", "--quote", "--prefix"),
    *("--max-width", "--fit-width", "--print-empty"),
    *("--sort-column", "--sort-ascending", "--sort-descending"),
]
html_theme = "openstackdocs"
html_theme_options = {"show_other_versions": False}
html_copy_source = False
smartquotes = False  # options begin with hyphens, and code has straight quotes

# Headings get the anchors that forges give them, so that a link works on the site and on a repository page.
myst_heading_anchors = 4

openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_pdf_link = False
openstackdocs_use_storyboard = False
