"""What is shown is true (A29): failed branches, the order of outputs, many branches."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from models.people import ScriptedPerson
from notebook.recording import Recording
from notebook.test_results import Outputs, cells, fine, outputs  # noqa: F401 - a fixture

from prose_kernel.cli.main import main
from prose_kernel.notebook.cells import Cells
from prose_kernel.runtime.ports import SessionRequest, SessionResult
from prose_kernel.views.cards import ENDS
from prose_kernel.views.display import Problem
from prose_kernel.views.session_cards import answer_display

CONTINUE = 'parallel for i in [1, 2]:\n  exec "echo out; exit $i"\n    env: { i }\n    on-fail: "continue"\n'
IN_THE_MIDDLE = "parallel:\n  a = do f(0)\n  b = do f(3)\n"
BLOCK = 'block f(n):\n  exec "exit $n"\n    env: { n }\n    on-fail: "continue"\n  output n\n'


async def shown(cells: Cells, code: str) -> Outputs:  # noqa: F811
    return outputs(await fine(cells, code))


async def test_a29_a_branch_whose_command_failed_is_failed(cells: Cells) -> None:  # noqa: F811
    text = (await shown(cells, CONTINUE))[0][1]
    assert text == "parallel, 2 branches: 2 failed\n  ✗ 1: exit code 1: out\n  ✗ 2: exit code 2: out"
    text = (await shown(cells, BLOCK + IN_THE_MIDDLE))[0][1]
    assert text == "parallel, 2 branches: 1 done, 1 failed\n  ✓ a: 0\n  ✗ b: exit code 3: 3"
    ignored = CONTINUE.replace("continue", "ignore")
    assert (await shown(cells, ignored))[0][1].startswith("parallel, 2 branches: 2 failed")
    caught = (
        'block g():\n  try:\n    exec "exit 1"\n  catch as e:\n    exec "echo mended"\nparallel:\n  do g()\n  do g()'
    )
    assert (await shown(cells, caught))[0][1].startswith("parallel, 2 branches: 2 done")


def test_a29_a_failed_branch_is_failed_at_a_terminal_and_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.prose").write_text(CONTINUE + BLOCK + IN_THE_MIDDLE)
    assert main(["run", "p.prose"]) == 0
    said = capsys.readouterr().err
    for line in ("1 failed: exit code 1: out", "2 failed: exit code 2: out", "b failed: exit code 3: 3", "a = 0"):
        assert line in said.splitlines()
    assert "a failed" not in said
    assert main(["report", "-o", "report.html"]) == 0
    page = Path("report.html").read_text()
    assert page.count('class="e branch failed group"') == 3 and page.count('class="e branch done group"') == 1


async def test_a29_an_output_is_never_above_the_decision_that_caused_it(cells: Cells) -> None:  # noqa: F811
    found = await shown(
        cells, 'let n = exec "echo 3"\nif **n is 3**:\n  exec "echo yes"\n  if **n is 4**:\n    exec "no"'
    )
    assert [kind for kind, _ in found] == ["display", "display", "stdout", "display"]
    assert "n is 3 → yes" in found[1][1] and found[2][1] == "yes\n" and "n is 4 → no" in found[3][1]
    gate = '%gate approve go\ngate go:\n  prompt: "Go?"\nexec "echo gone"'
    assert [text for _, text in await shown(cells, gate)][-2:] == ["gate go: approved by user", "gone\n"]


async def test_a29_nor_in_a_branch(cells: Cells) -> None:  # noqa: F811
    code = (
        'let n = exec "echo 3"\nparallel:\n  if **n is 3**:\n    exec "echo a"\n  if **n is not 4**:\n    exec "echo b"'
    )
    found = await shown(cells, code)
    assert [kind for kind, _ in found[1:]] == ["display", "display", "stdout"]
    assert found[2][1].count("→ yes") == 2 and found[3][1] == "[_1] a\n[_2] b\n"


async def test_a29_nor_after_many_outputs(cells: Cells) -> None:  # noqa: F811
    code = 'for i in [{}]:\n  if **i is {{i}}**:\n    exec "echo $i"\n      env: {{ i }}'
    recording = await fine(cells, code.format(", ".join(map(str, range(100, 180)))))
    late = next(call for call in reversed(recording.calls) if call[0] in ("display", "update"))
    assert "and " in late[1].data["text/plain"] or "times" in late[1].data["text/plain"]
    decided = _decided_before(recording)
    assert decided and all(decided)


def _decided_before(recording: Recording) -> list[bool]:
    """For each printed number, whether its condition was in a display above: with what is in it when the cell ends."""
    final = {call[2]: call[1] for call in recording.calls if call[0] == "update"}
    seen, found = 0, []
    for call in recording.calls:
        if call[0] == "display":
            display = final.get(call[2], call[1])
            seen += sum(1 for line in display.data["text/plain"].splitlines() if "→ yes" in line)
            seen += 100 * ("more of this kind" in display.data["text/plain"])
        elif call[0] == "stream":
            found += [seen > len(found) + at for at, _ in enumerate(call[2].split())]
    return found


async def test_a29_cards_are_in_the_order_in_which_their_statements_ended(cells: Cells) -> None:  # noqa: F811
    code = (
        'let a = "1"\nif **a is 1**:\n  let b = "2"\n  if **b is 2**:\n    exec "echo on"\n  let c = "3"\nlet d = "4"'
    )
    found = [text.partition("\n")[0] for _, text in await shown(cells, code)]
    assert [text[:7] for text in found] == ["a: text", "a is 1 ", "b: text", "b is 2 ", "on", "c: text", "d: text"]


async def test_a29_a_loop_still_makes_one_table(cells: Cells) -> None:  # noqa: F811
    found = await shown(cells, 'for i in [1, 2, 3]:\n  let a = exec "echo {i}"\n  exec "echo {a}"')
    assert [kind for kind, _ in found] == ["stdout", "display"]
    assert "bound 3 times" in found[1][1]


async def test_a29_many_branches_show_the_failed_ones_and_the_ends(cells: Cells) -> None:  # noqa: F811
    code = (
        "let found = parallel for i in [{}]:\n"
        '  exec "echo n$i; test $i != 77 && test $i != 55"\n    env: {{ i }}\n    on-fail: "continue"'
    ).format(", ".join(map(str, range(100))))
    recording = await fine(cells, code)
    text = recording.texts[0]
    assert text.startswith("parallel, 100 branches: 98 done, 2 failed\n")
    rows = text.splitlines()[1:]
    assert len(rows) == 2 * ENDS + 3 and rows[-1] == "  and 58 more: 58 done"
    assert [row.split()[1].rstrip(":") for row in rows[:-1]] == [
        *map(str, range(20)),
        "55",
        "77",
        *map(str, range(80, 100)),
    ]
    display = recording.calls[0][1]
    assert "max-height" in display.data["text/html"]
    assert len(cells.values()["found"]) == 100


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.prose", 'let a = 1\nexec "exit 3"'),
        ("p.prose", 'throw "x"'),
        ("p.prose", "let a = nowhere"),
        ("p.vvm", "x = 1\ny = nowhere"),
    ],
)
def test_a49_an_error_has_the_same_head_in_terminal_and_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)

    async def in_a_notebook() -> Problem | None:
        mine = Cells(tmp_path, ScriptedPerson())
        try:
            return await mine.run(f"%run {name}", Recording(), live=False)
        finally:
            await mine.close()

    problem = asyncio.run(in_a_notebook())
    assert problem is not None
    head = re.sub(r"\x1b\[[\d;]*m", "", problem.traceback[0]).splitlines()[0]
    assert main(["run", name]) != 0
    assert head in capsys.readouterr().err.splitlines()


def test_a29_escapes_of_a_typed_answer_are_shown_as_they_are() -> None:
    text = json.dumps({"when": 'a "b"\nc'})
    request = SessionRequest("session", "Say", "c1/s0", output={"type": "object"})
    data = answer_display(request, SessionResult(text=text), text).data
    assert text in data["text/markdown"].split("```json")[1] and text in data["text/plain"]
