"""Cells and magics through the code that both front ends share, in this process."""

from __future__ import annotations

import asyncio
import errno
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from notebook.recording import Recording

from prose_kernel.errors import NoPerson
from prose_kernel.language.source import Source
from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.magics.registry import all_magics
from prose_kernel.runs import languages
from prose_kernel.runtime.journal_records import Ended, Interrupted, Text
from prose_kernel.storage.journal_reading import NAME, read
from prose_kernel.storage.pending_writes import PendingWrites
from prose_kernel.views.display import Display


class Person:
    """Somebody with prepared answers."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.asked: list[str] = []
        self.shown: list[str] = []

    @property
    def available(self) -> bool:
        return bool(self.answers)

    async def ask(self, prompt: str) -> str:
        self.asked.append(prompt)
        if not self.answers:
            raise NoPerson("nobody")
        return self.answers.pop(0)

    def show(self, text: str) -> None:
        self.shown.append(text)


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    made = Cells(tmp_path, Person())
    yield made
    await made.close()


async def run(cells: Cells, code: str) -> Recording:
    output = Recording()
    await cells.run(code, output, live=False)
    return output


async def fine(cells: Cells, code: str) -> Recording:
    output = await run(cells, code)
    assert "error" not in output.kinds, output.calls
    return output


class Interrupting(Recording):
    """Interrupts the cell when it shows something."""

    def __init__(self, cells: Cells) -> None:
        super().__init__()
        self._cells = cells

    def display(self, display: Display, display_id: str | None = None) -> None:
        super().display(display, display_id)
        self._cells.interrupt()


async def wrong(cells: Cells, code: str) -> tuple[str, str, str]:
    output = await run(cells, code)
    assert output.kinds[-1] == "error", output.calls
    problem = output.calls[-1][1]
    return problem.ename, problem.evalue, "\n".join(problem.traceback)


async def test_an_interrupt_just_before_a_program_begins_is_in_its_journal(cells: Cells) -> None:
    await fine(cells, 'let kept = exec "true"')
    output = Interrupting(cells)
    await cells.run("%help\nlet n = 0\nloop (max: 100000000):\n  n = n + 1", output, live=False)
    assert output.kinds[-1] == "error"
    (journal,) = cells.cwd.glob(f".prose/runs/*/{NAME}")
    kinds = [type(record) for _, record in read(journal).records()]
    assert kinds[-3:] == [Text, Interrupted, Ended]


async def test_an_interrupt_while_values_are_stored_comes_after_the_end_of_the_text(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fine(cells, 'let kept = exec "true"')

    async def slow(writes: PendingWrites) -> None:
        monkeypatch.undo()
        cells.interrupt()
        await asyncio.Event().wait()

    monkeypatch.setattr(PendingWrites, "flush", slow)
    assert (await wrong(cells, "let a = 1"))[0] == "KeyboardInterrupt"
    await fine(cells, 'let b = exec "echo {a}"')
    await cells.close()
    (journal,) = cells.cwd.glob(f".prose/runs/*/{NAME}")
    assert [text.ended and text.ended.status for text in read(journal).texts] == ["done"] * 3
    later = Cells(cells.cwd, Person())
    await fine(later, "%restore")
    assert list(later.names()) == ["kept", "a", "b"]
    await later.close()


async def test_two_interrupts_while_values_are_stored_before_a_command_can_be_restored(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    continued = 'exec "touch ran"'
    await fine(cells, 'let kept = exec "true"')
    await fine(cells, continued)
    await cells.close()
    (journal,) = cells.cwd.glob(f".prose/runs/*/{NAME}")
    records = journal.read_text().splitlines(keepends=True)
    answered = max(number for number, one in enumerate(records) if '"k":"answered"' in one)
    journal.write_text("".join(records[:answered]))  # as if the kernel had been killed in the command
    (cells.cwd / "ran").unlink()
    again = Cells(cells.cwd, Person())

    async def slow(writes: PendingWrites) -> None:
        monkeypatch.undo()
        again.interrupt()
        again.interrupt()
        await asyncio.Event().wait()

    await fine(again, "%restore")
    monkeypatch.setattr(PendingWrites, "flush", slow)
    assert (await wrong(again, continued))[0] == "KeyboardInterrupt"
    await fine(again, 'let b = exec "echo two"')
    await again.close()
    later = Cells(cells.cwd, Person())
    await fine(later, "%restore")
    assert list(later.names()) == ["kept", "b"] and not (cells.cwd / "ran").exists()
    await later.close()


# ---------------------------------------------------------------- looking


async def test_a_record_that_could_not_be_written_is_not_counted(tmp_path: Path) -> None:
    person = Person()
    person.answers = ["fine", "well"]
    cells = Cells(tmp_path, person)
    await fine(cells, "%provider human\n%cassette --mode record")
    counts = []
    for word in ("one", "two"):
        await fine(cells, f'session "Say {word}"')
        (shown,) = (await fine(cells, "%cassette")).texts
        counts += [line.split()[1] for line in shown.splitlines() if line.startswith("records")]
        if word == "one":
            (tmp_path / "cassettes" / ".lock").unlink()
            (tmp_path / "cassettes" / ".lock").mkdir()
    await cells.close()
    assert counts == ["1", "1"]


async def test_a_name_of_an_earlier_run_has_the_hint_to_restore(cells: Cells) -> None:
    assert "hint: " not in (await wrong(cells, "let b = a"))[2]
    await fine(cells, 'let a = exec "echo 1"')
    assert "hint: " not in (await wrong(cells, "let b = x"))[2]
    later = Cells(cells.cwd, Person())  # the kernel was restarted
    assert "hint: %restore brings back the names of the last run" not in (await wrong(later, "let b = a"))[2]
    await cells.close()
    for text in ("let b = a", "%bindings\nlet b = a"):
        assert (await wrong(later, text))[2].endswith("hint: %restore brings back the names of the last run")
    assert "%restore" not in (await wrong(later, "let b = 1 ="))[2]
    await fine(later, "%restore\nlet b = a")
    await later.close()


async def test_an_unbound_name_of_an_earlier_run_has_the_hint_to_restore(tmp_path: Path) -> None:
    first, later = (Cells(tmp_path, Person(), languages.LANGUAGES["vvm"]) for _ in range(2))
    await fine(first, "a = 1")
    await first.close()
    assert first.last_journal is not None
    run = first.last_journal.parent.name
    assert (await wrong(later, "b = a"))[2].endswith(
        f"hint: %reset ends this run; then %restore {run} brings back the one before"
    )
    assert "hint: " not in (await wrong(later, "b = a"))[2]
    await fine(later, "%reset")
    await fine(later, f"%restore {run}")
    await fine(later, "b = a")
    await later.close()


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("openprose", "let b = None"),
        ("openprose", "let plan = 1\nlet b = plam"),
        ("vvm", "x = max(1, 2)"),
        ("vvm", "x = null"),
    ],
)
async def test_a_name_that_has_other_advice_has_no_hint_to_restore(tmp_path: Path, language: str, text: str) -> None:
    first, later = (Cells(tmp_path, Person(), languages.LANGUAGES[language]) for _ in range(2))
    await fine(first, "a = 1" if language == "vvm" else "let a = 1")
    await first.close()
    assert "%restore" not in (await wrong(later, text))[2]
    await later.close()


@pytest.mark.parametrize("mode", ["replay", "auto", "record"])
async def test_prompt_advises_to_record_only_where_nothing_is_recorded(cells: Cells, mode: str) -> None:
    await fine(cells, f"%cassette --mode {mode}")
    (shown,) = (await fine(cells, '%prompt session "Hello"')).texts
    assert f"mode {mode}" in shown
    assert ("nothing is recorded for session" in shown, "%cassette --mode auto" in shown) == (True, mode == "replay")


async def test_an_error_without_a_message_has_no_empty_place_for_one(cells: Cells) -> None:
    _, evalue, trace = await wrong(cells, 'throw "a\\n  b\\n"')
    assert evalue == "a b" and ": a b [E207]\n" in trace
    _, _, trace = await wrong(cells, "throw")
    assert trace.startswith("\x1b[1mThrowError\x1b[0m at line 1, column 1 [E207]\n")


async def test_bindings_are_a_table(cells: Cells) -> None:
    assert (await fine(cells, "%bindings")).texts == ["No bindings yet."]
    await fine(cells, 'let a = "x | y\\nz"\nconst n = 12\noutput log = exec "echo hi"')
    (text,) = (await fine(cells, "%bindings")).texts
    assert text.split("\n")[0].split() == ["name", "kind", "bytes", "from", "preview"]
    assert "const, number" in text and "output, text from exec" in text and 'output log = exec "echo hi"' in text
    (call,) = (await fine(cells, "%bindings")).calls
    table = call[1].data["text/markdown"].split("\n")
    assert len(table) == 5 and all(line.count(" | ") == 4 for line in table)


async def test_of_many_bindings_the_first_thousand_are_in_the_table(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fine(cells, "".join(f"let x{number} = {number}\n" for number in range(1_003)))
    looked_at: list[int] = []
    monkeypatch.setattr(Source, "line_column", lambda self, offset: looked_at.append(offset) or (1, 1))
    assert len(cells.names()) == 1_003 and not looked_at  # places are found where they are shown
    monkeypatch.undo()
    (text,) = (await fine(cells, "%bindings")).texts
    assert "\nx999  " in text and "\nx1000  " not in text and text.endswith("… and 3 more")


async def test_a_binding_is_shown_whole_with_its_metadata(cells: Cells) -> None:
    await fine(cells, 'let log = exec "seq 500; echo no >&2; exit 2"\n  on-fail: "continue"')
    output = await fine(cells, "%binding log")
    assert "exit_code: 2" in output.texts[0] and "stderr: no" in output.texts[0] and "\n500" in output.texts[0]
    assert "duration" in output.calls[0][1].metadata["prose"]
    assert sorted(output.calls[0][1].data) == ["text/markdown", "text/plain"]


async def test_a_text_binding_is_shown_as_it_is_and_cannot_act(cells: Cells) -> None:
    await fine(cells, 'let page = "# Title\\n<script>x</script>"\nlet price = "costs $5 and $6"')
    page, price = [(await fine(cells, f"%binding {name}")).calls[0][1].data for name in ("page", "price")]
    assert "<pre><code>&#35; Title\n&lt;script>" in page["text/markdown"].replace("&gt;", ">")
    assert price["text/markdown"].endswith("\n\n```\ncosts $5 and $6\n```")


async def test_dollar_signs_in_a_table_begin_no_formula(cells: Cells) -> None:
    await fine(cells, 'let price = "costs $5 and $6"\nlet plain = "costs 5"')
    markup = (await fine(cells, "%bindings")).calls[0][1].data["text/markdown"]
    assert '<span class="mathjax_ignore tex2jax_ignore">costs &#36;5 and &#36;6</span>' in markup
    assert "| costs 5 |" in markup


@pytest.mark.parametrize(
    ("code", "name", "message", "hint"),
    [
        ("%bindigns", "UsageError", "there is no magic %bindigns", "did you mean `%bindings`?"),
        ("%what", "UsageError", "there is no magic %what", "%help lists all magics"),  # not %gate
        ("%zzz", "UsageError", "there is no magic %zzz", "%help lists all magics"),
        ("%" + "z" * 3000, "UsageError", f"there is no magic %{'z' * 119}…", "%help lists all magics"),
        ("%%" + "z" * 3000, "UsageError", f"there is no cell magic %%{'z' * 118}…", ""),
        ("%vars", "UsageError", "there is no magic %vars", "%bindings lists what is bound"),
        ("%binding", "UsageError", "%binding: too few words", "usage: %binding NAME"),
        ("%bindings resul", "UsageError", "there is no binding resul", "did you mean `result`?"),
        ("%binding resul", "UsageError", "there is no binding resul", "did you mean `result`?"),
        ("%gate maybe x", "UsageError", "%gate needs approve or reject", "usage: %gate"),
        ("%gate approve x --comment", "UsageError", "--comment needs a value", "usage: %gate"),
        ("%input topic", "UsageError", "%input needs NAME=VALUE", "usage: %input NAME=VALUE"),
        ("%run nothing.prose", "UsageError", "nothing.prose cannot be read", ""),
        ("%cd nowhere", "UsageError", "nowhere is not a directory", ""),
        ("%provider gpt", "UsageError", "there is no provider `gpt`", "one of human, scripted"),
        ("%provider acp:nothing", "UsageError", "there is no CLI agent `nothing`", "prose.toml: [agents.nothing]"),
        ("%provider scripted", "UsageError", "only `scripted` takes a script", "usage: %provider"),
        ("%judge perhaps", "UsageError", "there is no provider `perhaps`", "one of human"),
        ("%judge scripted", "UsageError", "`scripted` cannot judge", "a model server"),
        ("%judge first human more", "UsageError", "%judge: too many words", "usage: %judge"),
        ("%judge human first", "UsageError", "first is one word too many", "usage: %judge"),
        ("%cassette --mode maybe", "UsageError", "one of off, auto, record, replay", "usage: %cassette"),
        ("%cassette --mode", "UsageError", "one of off, auto, record, replay", "usage: %cassette"),
        ("%cassette a b", "UsageError", "one name, --mode and --stale", "usage: %cassette"),
        ("%cassette --moed auto", "UsageError", "one name, --mode and --stale", "usage: %cassette"),
        ("%usage all", "UsageError", "%usage: too many words", "usage: %usage"),
        ("%cwd a b", "UsageError", "%cwd: too many words", "usage: %cwd [DIRECTORY]"),
        ("%prompt", "UsageError", "a statement is needed", "usage: %prompt"),
        ("%prompt\nlet x = 1\n%reset", "UsageError", "cannot run %reset", "to another cell"),
        ("%prompt let = 1", "SyntaxError", "", ""),
        ("%warnings loud", "UsageError", "on or off", "usage: %warnings"),
        ("%help sesion", "UsageError", "there is no help for sesion", "did you mean `session`?"),
        (f"%help {'x' * 2_000_000}", "UsageError", "there is no help for x", "%help lists all magics"),
        (f"%help '{'x' * 100_001}'", "UsageError", "%help: the line has quotes and is longer", "usage: %help"),
        ('%cd "unclosed', "UsageError", "no closing quotation", "usage: %cd"),
        (
            "%bindings\n%%vvm",
            "UsageError",
            "there is no cell magic %%vvm",
            "write it at the very beginning of the cell",
        ),
        ("%%vvm --in x\nx", "UsageError", "%%vvm takes no words here: --in x", "for notebooks of Python"),
        ("%%bash\nls", "UsageError", "there is no cell magic %%bash", ""),
        ("%explain", "UsageError", "%explain: no cell has failed yet", "usage: %explain"),
        ("%explain E043", "UsageError", "the reference has no code E043", "did you mean `E"),
        ("nothing?", "UsageError", "there is no help for nothing", "%help"),
    ],
)
async def test_misuse_is_an_error_that_helps(cells: Cells, code: str, name: str, message: str, hint: str) -> None:
    await fine(cells, "let result = 1")
    found = await wrong(cells, code)
    assert found[0] == name and message in found[1] and hint in found[2]


async def test_agents_and_blocks_are_tables(cells: Cells) -> None:
    assert (await fine(cells, "%agents\n%blocks")).texts == ["No agents yet.", "No blocks yet."]
    code = 'agent writer:\n  model: opus\n  persist: true\n  prompt: "You write"\nblock greet(who, how):\n  return who'
    await fine(cells, code)
    agents, blocks = (await fine(cells, "%agents\n%blocks")).texts
    assert agents.split("\n")[1].split() == ["writer", "opus", "true", "You", "write"]
    assert blocks.split("\n")[1].split() == ["greet(who,", "how)", "1"]


async def test_help_knows_everything(cells: Cells) -> None:
    await fine(cells, 'let plan = "the plan"\nagent writer:\n  model: opus\nblock greet(who):\n  return who')
    (table,) = (await fine(cells, "%help all")).texts
    assert "%bindings" in table and "%gate approve|reject NAME" in table
    for word, says in [
        ("plan", "the plan"),
        ("writer", "model: opus"),
        ("greet", "block greet(who)"),
        ("exec", "shell command"),
        ("on-fail", '"ignore"'),
        ("%gate", "--comment"),
    ]:
        assert says in (await fine(cells, f"%help {word}")).texts[0]
        assert says in (await fine(cells, f"{word}?")).texts[0]


async def test_help_names_each_magic_once_and_fits_a_screen(cells: Cells) -> None:
    (text,) = (await fine(cells, "%help")).texts
    table, _, more = text.partition("\n\n")
    assert text.count("\n") < 24 and max(map(len, text.split("\n"))) <= 110 and "%help all" in more
    named = re.findall(r"(?<!%)%(\w+)", table)
    known = all_magics()
    runs = {one.run for one in known.values()}
    assert {known[name].run for name in named} == runs, "add it to _GROUPS in notebook/magics/registry.py"
    assert len(named) == len(runs)


async def test_a_code_is_explained(cells: Cells) -> None:
    (text,) = (await fine(cells, "%explain E004")).texts
    assert text.startswith("#### E004: ") and "  if tests pass:         if **tests pass**:\n" in text


async def test_help_of_a_word_is_a_page(cells: Cells) -> None:
    assert (await fine(cells, "?exec")).kinds == ["page"]


# ---------------------------------------------------------------- doing


async def test_run_continues_the_notebook(cells: Cells, tmp_path: Path) -> None:
    (tmp_path / "more.prose").write_text("let b = a + 1\n")
    output = await fine(cells, "let a = 1\n%run more.prose\nlet c = b + 1")
    assert output.texts == ["a: number = 1", "b: number = 2", "c: number = 3"]
    assert output.kinds == ["display", "display", "result"]


async def test_an_error_in_a_file_names_the_file(cells: Cells, tmp_path: Path) -> None:
    (tmp_path / "bad.prose").write_text('# one\nthrow "inside"\n')
    name, message, trace = await wrong(cells, "%run bad.prose")
    assert (name, message) == ("ThrowError", "inside")
    assert "line 2" in trace and "bad.prose" in trace and 'throw "inside"' in trace


async def test_cd_moves_commands(cells: Cells, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert (await fine(cells, '%cd sub\nexec "basename $PWD"')).texts == ["sub", "sub\n"]
    assert (await fine(cells, '%cwd ..\nexec "basename $PWD"')).texts == [".", tmp_path.name + "\n"]


async def test_reset_forgets_and_starts_a_new_run(cells: Cells, tmp_path: Path) -> None:
    await fine(cells, 'let a = exec "echo 1"\n%reset')
    assert (await wrong(cells, "let b = a"))[0] == "SyntaxError"
    await fine(cells, 'let c = exec "echo 2"')
    assert len(list((tmp_path / ".prose" / "runs").iterdir())) == 2


async def test_state_shows_where_the_run_is(cells: Cells, tmp_path: Path) -> None:
    assert "not on disk yet" in (await fine(cells, "%state")).texts[0]
    await fine(cells, 'let a = exec "echo 1"')
    (text,) = (await fine(cells, "%state")).texts
    assert text == "The run is kept below .prose/runs.\n\n1→ a ✓\n"


async def test_state_of_a_run_in_memory_is_its_transcript(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROSE_STATE", "in-context")
    await fine(cells, 'let a = exec "echo 1"')
    (text,) = (await fine(cells, "%state")).texts
    assert text == "The run is kept in memory.\n\n1→ a ✓\n"


async def test_state_shows_the_end_of_a_long_log(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROSE_STATE", "in-context")
    await fine(cells, 'repeat 300:\n  let a = "x"\n  let b = "y"')
    (text,) = (await fine(cells, "%state")).texts
    lines = text.splitlines()
    assert len(lines) == 2 + 1 + 500
    assert re.fullmatch(r"… \d+ earlier lines", lines[2])


async def test_clear_removes_what_was_shown(cells: Cells) -> None:
    assert (await fine(cells, 'exec "echo a"\n%clear\nexec "echo b"')).kinds == ["stream", "clear", "stream"]


async def test_warnings_are_shown_once_and_can_be_switched_off(cells: Cells) -> None:
    code = 'let x = "a"\nexec "echo {x}"\nexec "echo {x}"'
    first = await fine(cells, code)
    said = "Warning at lines 2 and 3: the shell reads the value of `x` as part of the command (write `exec "
    assert first.texts[0].startswith(said) and "env: { x }" in first.texts[0]
    quiet = await fine(cells, "%warnings off\n" + code)
    assert not any("W051" in text for text in quiet.texts)
    assert (await fine(cells, "%warnings")).texts == ["off"]


async def test_a_scripted_provider_answers_sessions(cells: Cells, tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text('sessions:\n  "poem": "**Roses** <b>are</b>"\n')
    await fine(cells, "%provider scripted script.yaml")
    output = await fine(cells, 'session "Write a poem"')
    assert output.kinds == ["display"]
    display = output.calls[0][1]
    assert display.data["text/markdown"] == "<small>session · scripted</small>\n\n**Roses** &lt;b>are&lt;/b>"
    assert display.metadata["prose"]["provider"] == "scripted"
    bound = await fine(cells, 'let p = session "Write a poem"')
    assert bound.kinds == ["display"] and bound.texts[0].startswith("p · session · scripted\n")


async def test_who_answers_can_change_within_a_run(cells: Cells, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.yaml").write_text(f'sessions:\n  "poem": "{name}"\n')
    await fine(cells, "let kept = 1\n%provider scripted first.yaml")
    assert (await fine(cells, 'session "Write a poem"')).texts == ["session · scripted\nfirst"]
    await fine(cells, "%provider scripted second.yaml")
    assert (await fine(cells, 'let poem = session "Write a poem"\noutput sum = kept + 1')).texts[
        -1
    ] == "sum: number = 2"
    assert (await fine(cells, 'output said = "{poem}"')).texts == ["said: text = second"]
    name, *_ = await wrong(cells, "%provider scripted nothing.yaml")
    assert name == "UsageError"
    await fine(cells, "%provider scripted")  # with the script that is set
    (table,) = (await fine(cells, "%provider")).texts
    assert table.split("\n")[1].split() == ["answers", "now", "scripted"]
    assert (await fine(cells, 'session "Write a poem"')).texts == ["session · scripted\nsecond"]
    assert len(list((tmp_path / ".prose" / "runs").iterdir())) == 1


@pytest.mark.parametrize("code", ["%provider gpt", "%provider acp:x", "%judge nobody", "%provider scripted none.yaml"])
async def test_a_choice_that_makes_no_sense_is_reported_immediately_and_changes_nothing(
    cells: Cells, code: str
) -> None:
    for _ in range(2):  # before there is a run, and again
        assert (await wrong(cells, code))[0] == "UsageError"
        assert (
            cells.settings.provider is None and cells.settings.judge.provider is None and cells.settings.script is None
        )
        assert (await fine(cells, "let n = 1")).texts == ["n: number = 1"]


async def test_a_setting_that_makes_no_sense_can_be_fixed_by_a_magic(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROSE_PROVIDER", "gpt")
    assert "there is no provider `gpt`" in (await wrong(cells, "let n = 1"))[1]
    await fine(cells, "%provider human")
    assert (await fine(cells, "let n = 1")).texts == ["n: number = 1"]


async def test_rules_can_be_switched_off_within_a_run(cells: Cells) -> None:
    code = "if **score >= 60**:\n  let passed = true"
    assert "yes (rule: score is 72)" in (await fine(cells, "let score = 72\n" + code)).texts[1]
    await fine(cells, "%judge off")
    assert (await wrong(cells, code))[0] == "JudgeError"
    await fine(cells, "%judge first\n" + code)


async def test_a_dry_run_can_begin_and_end_within_a_run(cells: Cells, tmp_path: Path) -> None:
    await fine(cells, '%provider dry-run\nexec "touch made"')
    assert not (tmp_path / "made").exists()
    await fine(cells, '%provider auto\nexec "touch made"')
    assert (tmp_path / "made").exists()


async def test_a_cell_with_an_error_does_none_of_its_magics(cells: Cells) -> None:
    name, *_ = await wrong(cells, "let a = 1\n%clear\nlet = 2")
    assert name == "SyntaxError"
    assert (await fine(cells, "%bindings")).texts == ["No bindings yet."]


async def test_errors_keep_the_line_numbers_of_the_cell(cells: Cells) -> None:
    _, _, trace = await wrong(cells, '%bindings\n\n# remark\nthrow "here"')
    assert "line 4" in trace


async def test_a_call_stack_is_shown(cells: Cells) -> None:
    _, _, trace = await wrong(cells, 'block inner():\n  throw "deep"\nblock outer():\n  do inner()\ndo outer()')
    assert "line 2" in trace and "inner" in trace and "outer" in trace


async def test_a_setting_that_makes_no_sense_is_an_error_of_the_cell(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROSE_GATES", "sometimes")
    name, message, _ = await wrong(cells, "let a = 1")
    assert name == "UsageError" and "PROSE_GATES" in message
    monkeypatch.delenv("PROSE_GATES")
    await fine(cells, "let a = 1")


async def test_a_resource_that_has_run_out_is_named_and_costs_no_name(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fine(cells, "let a = 1")

    async def at_the_limit(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files", "somewhere")

    with monkeypatch.context() as patch:
        patch.setattr(type(cells.workspace), "run", at_the_limit)
        name, message, trace = await wrong(cells, "let b = 2")
    assert (name, message) == ("ResourceError", "too many open files") and "ulimit -n" in trace
    await fine(cells, "let c = a")


async def test_a_defect_of_the_package_shows_no_traceback(
    cells: Cells, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    await fine(cells, "let a = 1")

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    with monkeypatch.context() as patch:
        patch.setattr(type(cells.workspace), "run", broken)
        name, message, trace = await wrong(cells, "let b = 2")
    assert name == "InternalError" and "ZeroDivisionError" in message and "Traceback" not in trace
    assert "oops" in capfd.readouterr().err
    await fine(cells, "let c = a")


async def test_deep_recursion_folds_its_call_stack(cells: Cells) -> None:
    name, _, trace = await wrong(cells, "block f(n):\n  do f(n + 1)\ndo f(0)")
    assert name == "RecursionLimitExceeded"
    assert "... 80 more ..." in trace and trace.count("\n") < 60


async def test_completion_and_inspection_know_the_run(cells: Cells) -> None:
    from prose_kernel.notebook.completion import complete

    await fine(cells, 'let plan = "the plan"\nagent writer:\n  model: opus\nblock greet(who):\n  return who')
    for code, wanted in [("let x = pl", "plan"), ("session: wr", "writer"), ("do gr", "greet"), ("%binding p", "plan")]:
        assert wanted in [m.text for m in complete(cells, code, len(code)).matches]
    found = cells.inspect('exec "echo {plan}"', 14)
    assert found is not None and "the plan" in found.data["text/plain"]


@pytest.mark.parametrize(
    "cell", ["%run ~nobody-of-this-name/x", "%cd ~nobody-of-this-name", "%run \0", "%cd \0", f"%cd {'a' * 300}"]
)
async def test_a_path_that_cannot_be_is_named(cells: Cells, cell: str) -> None:
    problem = await cells.run(cell, Recording(), live=False)
    assert problem is not None and problem.ename == "UsageError"


async def test_an_error_that_holds_a_whole_file_shows_its_beginning(cells: Cells) -> None:
    output = Recording()
    problem = await cells.run('let s = "0123456789"\nrepeat 15:\n  s = "{s}{s}"\nthrow "{s}"', output, live=False)
    assert problem is not None and problem.evalue.endswith("… (327,680 characters in all)")
    assert problem.evalue in problem.traceback[0]
    assert len(problem.evalue) < 11_000 and len("".join(problem.traceback)) < 12_000


@pytest.mark.parametrize("start", ["%", "%%", "%explain ", "%binding ", "%provider ", "%cd "])
async def test_a_word_without_end_is_not_repeated_in_full(cells: Cells, start: str) -> None:
    problem = await cells.run(start + 50_000 * "a", Recording(), live=False)
    assert problem is not None and problem.ename == "UsageError"
    assert len(problem.evalue) < 11_000 and len("".join(problem.traceback)) < 12_000


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("damage", ["x = " + "[" * 5000, 'gates = "no"\nprovder = "human"', "\0"])
async def test_a19_a_cell_names_damaged_settings_and_runs_once_they_are_fixed(
    cells: Cells, tmp_path: Path, damage: str
) -> None:
    (tmp_path / "prose.toml").write_text(damage)
    name, message, _ = await wrong(cells, "let a = 1")
    assert name == "UsageError" and ("prose.toml" in message or "settings" in message)
    (tmp_path / "prose.toml").unlink()
    await fine(cells, "let a = 1")


async def test_a19_a_notebook_whose_directory_is_gone_says_what_is_in_the_way(cells: Cells, tmp_path: Path) -> None:
    await fine(cells, "let a = 1")
    shutil.rmtree(tmp_path)
    for code in ('exec "echo hi"', "let b = 2", "%cd", "%bindings", "%state", "%tasks", "%provider", "%exec echo hi"):
        output = await run(cells, code)
        names = [call[1].ename for call in output.calls if call[0] == "error"]
        assert "InternalError" not in names, (code, output.calls)


async def test_help_knows_every_magic_that_it_lists(cells: Cells) -> None:
    listed = set(
        re.findall(r"%%?\w+", "".join((await fine(cells, "%help")).texts + (await fine(cells, "%help all")).texts))
    )
    assert {"%%prose", "%%vvm", "%%task", "%%command"} < listed
    for name in listed - {"%NAME"}:
        (page,) = (await fine(cells, f"%help {name}")).texts
        assert name.lstrip("%") in page
    assert "hint: nothing needs to be loaded in this notebook" in (await wrong(cells, "%help %load_ext"))[2]


@pytest.mark.parametrize("code", ["?", "let x = 1\nx?", 'exec "true" ?'])
async def test_a_question_mark_has_a_hint_to_the_help(cells: Cells, code: str) -> None:
    name, message, hint = await wrong(cells, code)
    assert (name, message) == ("SyntaxError", "unexpected `?` [E004]")
    assert hint.endswith("hint: in a notebook, Shift+Tab and `%help WORD` explain")
