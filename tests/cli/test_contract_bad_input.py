"""Invalid contract files: one clear error each, the same from `prose compile`, `prose run` and the kernel
(prose-md.md 1, 3.5, 3.7, 9)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cli.contract_world import ContractWorld, function, parameters, returns, script
from notebook.recording import Recording

from prose_kernel.notebook.cells import Cells
from prose_kernel.runtime.asker import Unattended
from prose_kernel.views.display import Problem

BOTH = returns("`a`: x", "`b`: y")
GOOD = function("f", BOTH, script("return { a: 1, b: 2 }"))
INLINE = "## g\n\n### Returns\n\n- `x`\n\n"
NEEDS = function("need", parameters("`topic`: what"), returns("`x`"))


def in_kernel(directory: Path, name: str) -> Problem:
    return asyncio.run(_in_kernel(directory, name))


async def _in_kernel(directory: Path, name: str) -> Problem:
    cells, output = Cells(directory, Unattended()), Recording()
    try:
        await cells.run(f"%run {name}", output, live=False)
    finally:
        await cells.close()
    found = output.calls[-1][1]
    assert isinstance(found, Problem), output.calls
    return found


def calls(path: str) -> str:
    return function("f", returns("`a`"), script(f"return call {path}"))


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        (GOOD.replace("name: f", "name: [f"), "E302", 3, 1),
        ("---\njust words\n---\n", "E302", 1, 1),
        (GOOD.removeprefix("---\n"), "E302", 1, 1),
        (f"{GOOD}\n{INLINE}{INLINE}", "E305", 24, 1),
        (GOOD.replace("```\n", "", 1), "E304", 13, 1),
        (GOOD.replace(", b: 2", ""), "E318", 14, 8),
        (calls("need"), "E026", 13, 13),
        (calls('"../outside/secret"'), "E330", 13, 13),
        (calls('"std/../../secret"'), "E330", 13, 13),
        (calls('"./linked.prose.md"'), "E330", 13, 13),
        (calls('"./missing.prose.md"'), "E330", 13, 13),
    ],
)
def test_a_bad_file_is_one_error_with_its_place(
    tmp_path: Path, world: ContractWorld, monkeypatch: pytest.MonkeyPatch, text: str, code: str, line: int, column: int
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("do not read this: {}")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    Path("linked.prose.md").symlink_to(outside / "secret")
    Path("need.prose.md").write_text(NEEDS)
    Path("bad.prose.md").write_text(text)
    place = f"line {line}, column {column}"
    for command, status in (("compile", 1), ("run", 2)):
        assert world.prose(command, "bad.prose.md") == status
        shown = world.out + world.err
        assert (shown.count("Error at"), place in shown, f"[{code}]" in shown) == (1, True, True), shown
        assert "do not read" not in shown
    problem = in_kernel(home, "bad.prose.md")
    assert (problem.code, place in "\n".join(problem.traceback)) == (code, True)


def test_errors_found_only_at_run_time_are_at_the_bullet_or_call(tmp_path: Path, world: ContractWorld) -> None:
    world.write(
        lacks=function("lacks", BOTH, script("let r = { a: 1 }", "return r")),
        one=function("one", returns("`a`"), script("return call two")),
        two=function("two", returns("`a`"), script("return call one")),
    )
    for name, code, place in (("lacks", "E230", "line 9, column 3"), ("one", "E206", "line 13, column 8")):
        assert world.prose("run", f"{name}.prose.md") == 1
        assert (place in world.err, f"[{code}]" in world.err) == (True, True), world.err
        problem = in_kernel(tmp_path, f"{name}.prose.md")
        assert (problem.code, place in "\n".join(problem.traceback)) == (code, True)


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("\n", "\r\n"),
        f"\ufeff{GOOD}",
        GOOD.replace("### Execution", f"### Description\n\n{'word ' * 2_000_000}\n\n### Execution"),
        GOOD.replace("a: 1", 'a: """\n## no heading\n### Returns\n"""'),
        GOOD.replace("### Execution", "<details>\n<b>x</b> <!-- text -->\n</details>\n\n### Execution"),
    ],
    ids=["crlf", "bom", "10 MB", "## in a fence", "html"],
)
def test_unusual_text_is_read_like_any_other(world: ContractWorld, text: str) -> None:
    Path("f.prose.md").write_bytes(text.encode())
    assert world.prose("compile", "f.prose.md") == 0
    assert world.run("f.prose.md")["outputs"]["b"] == 2


@pytest.mark.parametrize("word", ["prosescript", "Prose", "PROSE"])
def test_a_script_in_a_fence_of_the_wrong_word_is_reported(world: ContractWorld, word: str) -> None:
    world.write(f=GOOD.replace("```prose", f"```{word}"))
    assert world.findings("f.prose.md") == [("W320", 13, 1)]
