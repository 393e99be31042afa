"""Contract files as notebooks, and back (prose-md.md 10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prose_kernel.cli.main import main
from prose_kernel.errors import UsageError
from prose_kernel.notebook.contract_notebooks import as_file, as_notebook

BRIEF = """\
---
name: brief
kind: function
---

# Brief

### Parameters

- `topic`: what the brief is about

### Execution

Words for people.

~~~prose
let draft = call writer
  topic: topic
~~~

```prose
return draft
```

```json
{ "shown": true }
```
## writer
### Returns

- `draft`

### Execution

  ````prose
    let inner = "```"
  if inner == "a":
    return inner
  ````
"""
PIECES = [
    *("---\n", "kind: function\n", "kind: pattern\n", "# Title\n", "## inner\n", "## Not a name!\n", "### Execution\n"),
    *("### Delegation\n", "### Slots\n", "#### stage\n", "- `a`: text\n", "\n", "\n\n", "  \n", "words  \n", "\t\n"),
    *("```prose\n", "  ```prose\n", "~~~~prose strict\n", "```\n", "  ```\n", "`````\n", "~~~~\n", "```json\n"),
    *('let x = "a"\n', "  return x\n", "\tlet y = 1\n", "\r", "\x0c\n", "last line", "\u2028", "\x85\n"),
    *("%call a b=1\n", "%%python\n", "```prose-notebook\n", "~~~prose-notebook x\n", "a?\n", "!ls\n"),
]


def sources(book: dict[str, Any]) -> list[tuple[str, str]]:
    return [(cell["cell_type"], "".join(cell["source"])) for cell in book["cells"]]


def test_headings_begin_words_and_scripts_are_cells() -> None:
    book = as_notebook(BRIEF, "brief.prose.md")
    assert sources(book) == [
        ("raw", "---\nname: brief\nkind: function\n---"),
        ("markdown", "# Brief"),
        ("markdown", "### Parameters\n\n- `topic`: what the brief is about"),
        ("markdown", "### Execution\n\nWords for people."),
        ("code", "let draft = call writer\n  topic: topic"),
        ("code", "return draft"),
        ("markdown", '```json\n{ "shown": true }\n```'),
        ("markdown", "## writer"),
        ("markdown", "### Returns\n\n- `draft`"),
        ("markdown", "### Execution"),
        ("code", '  let inner = "```"\nif inner == "a":\n  return inner'),
    ]
    assert (book["metadata"]["prose"], book["metadata"]["kernelspec"]["name"]) == (
        {"profile": "prosescript", "contract": {}},
        "prose",
    )
    nbformat.validate(nbformat.from_dict(book))


@given(st.lists(st.sampled_from(PIECES), max_size=30), st.sampled_from(["\n", "\r\n", "mixed"]), st.booleans())
def test_an_unchanged_file_keeps_every_character(pieces: list[str], ends: str, marked: bool) -> None:
    text = "".join(pieces)
    if ends == "mixed":
        text = "".join(piece.replace("\n", "\r\n") if at % 2 else piece for at, piece in enumerate(pieces))
    elif ends != "\n":
        text = text.replace("\n", ends)
    text = "\ufeff" * marked + text
    book = json.loads(json.dumps(as_notebook(text, "a.prose.md")))
    assert as_file(book) == text
    again = nbformat.reads(json.dumps(book), as_version=4)
    assert as_file(again) == text
    for cell in book["cells"]:
        cell["source"] = "".join(cell["source"])
    assert as_file(book) == text


@given(st.integers(0, 8), st.sampled_from(["", "\r"]))
def test_only_what_was_changed_changes(number: int, before: str) -> None:
    text = BRIEF.replace("\n", f"{before}\n")
    book = as_notebook(text, "brief.prose.md")
    old = "".join(book["cells"][number]["source"])
    book["cells"][number]["source"] = old + "\n# more"
    assert as_file(book) == text.replace(
        old.replace("\n", f"{before}\n"), (old + "\n# more").replace("\n", f"{before}\n"), 1
    )


def test_cells_that_were_added_moved_and_left_empty() -> None:
    book = as_notebook("# T\n\n### Execution\n\n```prose\nreturn 1\n```", "a.prose.md")
    new: dict[str, Any] = {"metadata": {}, "outputs": [], "execution_count": 3}
    book["cells"].append({**new, "cell_type": "code", "source": 'let x = """\n```\n"""'})
    book["cells"].append({**new, "cell_type": "code", "source": ["\n"]})
    book["cells"].append({"cell_type": "markdown", "metadata": {}, "source": "### Errors"})
    text = as_file(book)
    assert text == (
        "# T\n\n### Execution\n\n```prose\nreturn 1\n```\n"
        '````prose\nlet x = """\n```\n"""\n````\n\n### Errors\n'
    )  # fmt: skip
    assert as_file(as_notebook(text, "a.prose.md")) == text


@pytest.mark.parametrize(
    ("cell", "fence"),
    [
        ("%call brief topic=tea", "```prose-notebook\n%call brief topic=tea\n```"),
        ("%input topic=tea\n# words", "```prose-notebook\n%input topic=tea\n# words\n```"),
        ("%graph\nreturn 2", "```prose-notebook\n%graph\nreturn 2\n```"),
        ("%%python\nreturn", "```prose-notebook\n%%python\nreturn\n```"),
        ("!ls", "```prose-notebook\n!ls\n```"),
        ("%input topic=tea\nreturn 2", "```prose\n# %input topic=tea\nreturn 2\n```"),
        ("%%prose --profile prosescript\nreturn 2", "```prose\n# %%prose --profile prosescript\nreturn 2\n```"),
        ('let x = """\n%call a\n"""', '```prose\nlet x = """\n%call a\n"""\n```'),
        ("let percent = 7 % 2", "```prose\nlet percent = 7 % 2\n```"),
    ],
)
def test_magics_are_not_part_of_a_script(cell: str, fence: str) -> None:
    book = as_notebook("# T\n\n### Execution\n\n~~~prose\nreturn 1\n~~~\n", "a.prose.md")
    book["cells"][-1]["source"] = cell
    kept = fence if fence.startswith("```prose-notebook") else fence.replace("```", "~~~")
    text = as_file(book)
    assert text == f"# T\n\n### Execution\n\n{kept}\n"
    again = as_notebook(text, "a.prose.md")
    assert sources(again)[-1] == ("code", fence.partition("\n")[2].removesuffix("\n```"))
    assert as_file(again) == text


def test_an_attached_image_is_refused() -> None:
    book = as_notebook(BRIEF, "a.prose.md")
    book["cells"][1]["attachments"] = {"a.png": {"image/png": "AAAA"}}
    with pytest.raises(UsageError):
        as_file(book)


def test_damaged_metadata_does_no_harm() -> None:
    book = as_notebook(BRIEF, "a.prose.md")
    for cell, own in zip(book["cells"][3:], [7, {"open": ""}, {"open": 3, "exact": "x"}], strict=False):
        cell["metadata"] = {"prose": own}
    assert "```prose\nlet draft" in as_file(book)


@pytest.mark.parametrize("content", [BRIEF.encode(), b"\xef\xbb\xbf" + BRIEF.replace("\n", "\r\n").encode()])
def test_the_commands(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("brief.prose.md").write_bytes(content)
    assert main(["notebook", "brief.prose.md"]) == 0
    assert main(["export", "brief.ipynb", "-o", "again.prose.md"]) == 0
    assert Path("again.prose.md").read_bytes() == content
    assert main(["export", "brief.ipynb", "-o", "brief.prose.md"]) == 0  # the same bytes need no --force
    assert main(["export", "brief.ipynb", "-o", "brief.prose"]) == 2
    Path("bad.prose.md").write_bytes(b"---\n\xff")
    assert main(["notebook", "bad.prose.md"]) == 2
