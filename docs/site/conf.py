"""How `make docs` renders documentation and course into one site, `build/site`: Sphinx with MyST and the theme Furo.

The pages stay what they are on GitHub: plain Markdown and notebooks with their saved outputs, which are not run again.
What a site needs beyond that is here: which page stands where (`NAVIGATION`), and the anchors that GitHub gives to
headings. A broken link, a missing anchor or a page without a place in the navigation fails the build. Everything is
loaded from the site itself; it can be opened without a server.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parents[2]

EXAMPLES = sorted(
    str(path.relative_to(ROOT / "examples").with_suffix(""))
    for pattern in ("README.md", "*/README.md", "*/*.ipynb", "*/*.prose.md")
    for path in (ROOT / "examples").glob(pattern)
)

NAVIGATION = {
    "Tutorials": [
        "docs/tutorials/first-workflow",
        "docs/tutorials/in-the-notebook",
        "docs/tutorials/from-a-chat",
        "notebooks/tour",
        "notebooks/vvm_tour",
        "notebooks/contracts/tour.prose",
        "docs/tutorials/course",
    ],
    "How to: start from something that works": [
        "docs/how-to/cookbook",
        "docs/how-to/gallery",
    ],
    "How to: models and answers": [
        "docs/how-to/providers",
        "docs/how-to/budgets",
        "docs/how-to/prompts",
        "docs/how-to/typed-answers",
        "docs/how-to/judge",
        "docs/how-to/recordings",
    ],
    "How to: people": [
        "docs/how-to/people",
        "docs/how-to/teams",
    ],
    "How to: agents, tools and commands": [
        "docs/how-to/permissions",
        "docs/how-to/exec-tool",
        "docs/how-to/tools",
        "docs/how-to/programs",
        "docs/how-to/tasks",
        "docs/how-to/many-machines",
    ],
    "How to: notebooks and runs": [
        "docs/how-to/durability",
        "docs/how-to/edit-and-continue",
        "docs/how-to/freshness",
        "docs/how-to/debugging",
        "docs/how-to/reports",
        "docs/how-to/data-and-images",
        "docs/how-to/sharing",
        "docs/how-to/notebook-to-program",
        "docs/how-to/state",
    ],
    "How to: test and operate": [
        "docs/how-to/contract-files",
        "docs/how-to/testing-your-workflow",
        "docs/how-to/ci",
        "docs/how-to/evaluation",
        "docs/how-to/watching",
        "docs/how-to/editors",
        "docs/how-to/teaching",
        "docs/how-to/troubleshooting",
    ],
    "Explanation": [
        "docs/explanation/openprose-or-vvm",
        "docs/explanation/which-openprose",
        "docs/explanation/determinism",
        "docs/explanation/durability",
        "docs/explanation/what-leaves-your-machine",
        "docs/explanation/threat-model",
    ],
    "Reference": [
        "docs/index",
        "docs/reference/index",
        "docs/reference/openprose",
        "docs/reference/prose-md",
        "docs/reference/vvm",
        "docs/reference/judge-rules",
        "docs/reference/exec-and-tasks",
        "docs/reference/sessions",
        "docs/reference/jupyter",
        "docs/reference/evaluation",
        "docs/reference/telemetry",
        "docs/reference/cli",
        "docs/reference/python",
        "docs/reference/settings",
        "docs/reference/glossary",
        "CHANGELOG",
    ],
    "Contributing": [
        "CONTRIBUTING",
        "docs/contributing/architecture",
        "docs/contributing/dependencies",
        "docs/contributing/benchmarks",
        "docs/contributing/reliability",
        "docs/contributing/security-tests",
        "SECURITY",
    ],
}  # fmt: skip


def _parts(page: Path) -> list[str]:
    """The parts of a page of the reference, to which it links: `openprose/errors` of `openprose.md`."""
    return re.findall(rf"\]\(({page.stem}/[\w-]+)\.md\)", page.read_text(encoding="utf-8"))


NESTED = {
    "docs/tutorials/course": sorted(
        f"notebooks/{path.parent.name}/{path.stem}"
        for part in ("course", "topics")
        for path in ROOT.glob(f"notebooks/{part}/*.ipynb")
    ),
    "docs/how-to/gallery": [f"examples/{name}" for name in EXAMPLES],
    "notebooks/contracts/tour.prose": sorted(
        f"notebooks/contracts/{path.stem}"
        for path in ROOT.glob("notebooks/contracts/*.prose.md")
        if path.name != "tour.prose.md"
    ),
} | {
    f"docs/reference/{page.stem}": [f"docs/reference/{part}" for part in dict.fromkeys(_parts(page))]
    for page in sorted(ROOT.glob("docs/reference/*.md"))
    if _parts(page)
}
"""Pages that the navigation shows below another one: notebooks, examples, the parts of a page of the reference."""

project = "prose_kernel"
author = copyright = "The prose_kernel developers"
extensions = ["myst_nb"]
root_doc = "README"
include_patterns = [f"{page}.*" for pages in [*NAVIGATION.values(), *NESTED.values()] for page in pages] + [
    "README.md",
    "docs/**/*.md",
]
exclude_patterns = ["**/*.expected.md"]  # the results of programs, next to them
suppress_warnings = [
    "myst.header",  # cells may skip a level of headings
    "mystnb.unknown_mime_type",
    "misc.highlighting_failure",  # examples of mistakes are no correct programs
]

# Markdown as GitHub reads it; anchors for headings of every level
myst_heading_anchors = 6
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "gfm"  # with tables
nb_render_error_lexer = "myst-ansi"

smartquotes = False  # in outputs quotes are those of programs
html_theme = "furo"
html_title = "prose_kernel"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "tango", "github-dark"

_NO_LEXER = re.compile(r"^```(prose|vvm|diff)[^\n]+$", re.MULTILINE)
"""Fences of the reference say behind the language what an example is for."""


def _navigation(app: Any, page: str, text: list[str]) -> None:
    """The front page names all others: Sphinx makes the navigation of it."""
    if (ROOT / f"{page}.ipynb").is_file():
        text[0] = _without_diagrams(text[0])
    else:
        text[0] = _NO_LEXER.sub(r"```\1", text[0])
    if page == root_doc:
        for caption, pages in NAVIGATION.items():
            names = "\n".join(f"/{one}" for one in pages)
            text[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```\n"
    if page in NESTED:
        names = "\n".join(f"/{one}" for one in NESTED[page])
        text[0] += f"\n\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"


def _without_diagrams(notebook: str) -> str:
    """Outputs that a front end would draw with Mermaid are shown as text: a site without scripts cannot draw them."""
    book = json.loads(notebook)
    for cell in book["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "```mermaid" in "".join(data.get("text/markdown", "")):
                del data["text/markdown"]
    return json.dumps(book)


def _anchors(app: Any, tree: Any) -> None:
    """Headings get the ids that GitHub gives them, so that a link from elsewhere leads to the same place."""
    for section in tree.findall(nodes.section):
        slug = section.get("slug")
        if slug and slug not in section["ids"]:
            section["ids"].insert(0, slug)


def _first_page(app: Any, problem: Exception | None) -> None:
    """Who opens the directory reads the front page."""
    if problem is None:
        name = f"{root_doc}.html"
        moved = f'<meta http-equiv="refresh" content="0; url={name}">'
        page = f'<!doctype html><meta charset="utf-8">{moved}<a href="{name}">{project}</a>\n'
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    for plain in ("mermaid", "permissions", "rules"):  # fences of the documentation whose languages have no colours
        app.add_lexer(plain, TextLexer)
    app.connect("source-read", _navigation)
    app.connect("doctree-read", _anchors)
    app.connect("build-finished", _first_page)
