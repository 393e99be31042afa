"""`%call`: functions of contract files, called from a line of a notebook (docs/reference/jupyter.md 2, prose-md.md 10)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from notebook.recording import Recording

from prose_kernel.notebook import completion
from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.inspection import inspect
from prose_kernel.runtime.asker import Form, Unattended
from prose_kernel.views.bundle import bundle
from prose_kernel.views.display import Problem

NOTES = """\
---
name: notes
kind: function
---

### Parameters

- `topic`: what to write about
- `sizes` (default `[1, 2]`): how long
- `tone` (optional, default "a {dry} \\"one\\"")

### Returns

- `text`: the notes

### Execution

```prose
return "{topic}, {sizes}, {tone}"
```
"""
PAIR = """\
---
name: pair
kind: function
---

### Parameters

- `a`
- `b`

### Execution

```prose
return a + "-" + b
```

## inner

### Parameters

- `x`

### Execution

```prose
return [x]
```
"""


class Person:
    """Answers forms and lines in order, and remembers what was asked."""

    available = True
    magic = "%"

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str | Form] = []

    def show(self, text: str) -> None:
        raise AssertionError(text)

    async def ask(self, prompt: str) -> str:
        self.asked.append(prompt)
        return self.answers.pop(0)

    async def ask_form(self, prompt: str, form: Form) -> str:
        self.asked.append(form)
        return self.answers.pop(0)


Made = Callable[..., Cells]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Made]:
    (tmp_path / "notes.prose.md").write_text(NOTES)
    (tmp_path / "pair.prose.md").write_text(PAIR)
    all_cells: list[Cells] = []

    def make(person: Person | None = None) -> Cells:
        all_cells.append(Cells(tmp_path, person or Unattended()))
        return all_cells[-1]

    yield make
    for cells in all_cells:
        await cells.close()


async def run(cells: Cells, code: str) -> Recording:
    output = Recording()
    await cells.run(code, output, live=False)
    return output


async def shown(cells: Cells, code: str) -> str:
    output = await run(cells, code)
    assert "error" not in output.kinds, output.calls
    return output.texts[-1]


async def problem(cells: Cells, code: str) -> Problem:
    found = (await run(cells, code)).calls[-1][1]
    assert isinstance(found, Problem)
    return found


async def test_a_function_runs_with_the_inputs_of_the_line(made: Made) -> None:
    cells = made()
    assert await shown(cells, "%call notes topic=tea") == 'tea, [1,2], a {dry} "one"'
    assert "green tea {x}, [3], soft" in await shown(cells, "%call notes topic='green tea {x}' sizes=[3] tone=\"soft\"")
    assert '{"k":"a b"}' in await shown(cells, '%call notes topic=t sizes={"k": "a b"}')
    assert "1-2" in await shown(cells, "%call ./pair.prose.md a=1 b=2")
    assert "1\N{SYMBOL FOR BELL}-2" in await shown(cells, "%call pair a=1\x07 b=2")
    assert cells.names() == {}


async def test_aliases_of_earlier_cells_are_called_completed_and_described(made: Made) -> None:
    cells = made()
    script = "%%prose --profile prosescript\n"
    await run(cells, f'{script}use "./pair.prose.md" as both')
    assert await shown(cells, "%call both a=1 b=2") == "1-2"
    assert await shown(cells, f'{script}let c = call both\n  a: "3"\n  b: "4"\nreturn c') == "c: text = 3-4"
    assert [one.text for one in completion.complete(cells, "%call bo", 8).matches] == ["both"]
    found = inspect(cells, "%call both", 8)
    assert found is not None
    assert "function pair" in str(bundle(found).data["text/plain"])


@pytest.mark.parametrize(
    ("code", "found", "line"),
    [
        ("%call notes tone=x", ("E026", 1, 7), "%call notes tone=x"),
        ("%call note topic=x", ("E313", 1, 7), "%call note topic=x"),
        ("%call notes topic=x tpic=y", ("E027", 1, 21), "%call notes topic=x tpic=y"),
        ("%call ./none.prose.md", ("E330", 1, 7), "%call ./none.prose.md"),
    ],
)
async def test_a_call_that_breaks_the_contract_is_an_error_at_its_word(
    made: Made, code: str, found: tuple[str, int, int], line: str
) -> None:
    cells = made()
    wrong = await problem(cells, code)
    assert wrong.code == found[0]
    text = "\n".join(wrong.traceback)
    assert f"line {found[1]}, column {found[2]}" in text
    assert line in text


@pytest.mark.parametrize("code", ["%call", "%call notes tea", "%call notes topic=a topic=b", "%call notes topic='a"])
async def test_a_line_that_is_not_a_call_says_how_to_write_one(made: Made, code: str) -> None:
    assert (await problem(made(), code)).ename == "UsageError"


async def test_without_inputs_one_form_asks_for_all(made: Made) -> None:
    person = Person(json.dumps({"topic": "tea", "sizes": "[7]", "tone": ""}))
    assert "tea, [7], a {dry}" in await shown(made(person), "%call notes")
    (form,) = person.asked
    assert isinstance(form, Form)
    parts = [(part.name, part.about, part.required, part.value) for part in form.parts]
    assert parts == [
        ("topic", "what to write about", True, ""),
        ("sizes", "how long", False, "[1, 2]"),
        ("tone", "", False, 'a {dry} "one"'),
    ]


async def test_what_the_line_lacks_is_asked_for_and_nothing_else(made: Made) -> None:
    person = Person('{"b": "right"}')
    assert "left-right" in await shown(made(person), "%call pair a=left")
    assert [[part.name for part in form.parts] for form in person.asked if isinstance(form, Form)] == [["b"]]


async def test_a_front_end_without_forms_asks_line_by_line(made: Made) -> None:
    person = Person("left", "right")
    assert "left-right" in await shown(made(person), "%call pair")
    assert person.asked[1:] == ["b: "]


async def test_inline_nodes_of_the_notebooks_own_file_are_called(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "pair.prose.md"))
    cells = made()
    assert completion.complete(cells, "%call in", 8).matches[0].text == "inner"
    assert await shown(cells, "%call inner x=1") == '["1"]'


async def test_names_and_inputs_are_completed(made: Made) -> None:
    cells = made()

    def offers(code: str) -> list[str]:
        return [one.text for one in completion.complete(cells, code, len(code)).matches]

    script = "%%prose --profile prosescript\n"
    assert offers("%call no") == ["notes"]
    assert offers("%call notes to") == ["tone=", "topic="]
    assert offers("%call notes topic=x t") == ["tone="]
    assert offers(f"{script}let a = call ") == ["notes", "pair"]
    assert offers(f"{script}let a = call notes\n  topic: 1\n  ")[:2] == ["sizes: ", "tone: "]


async def test_what_is_called_shows_its_contract(made: Made) -> None:
    cells = made()
    code = "%%prose --profile prosescript\nlet a = call notes\n  topic: 1\n"

    def help_at(word: str, text: str = code) -> str:
        found = inspect(cells, text, text.index(word) + 1)
        return str(bundle(found).data["text/plain"]) if found is not None else ""

    assert "input   topic  - what to write about" in help_at("notes")
    assert help_at("topic") == "input   topic  - what to write about"
    assert "output  text" in help_at("notes", "%call notes topic=x")
    assert inspect(cells, code, code.index("let") + 1) is not None
