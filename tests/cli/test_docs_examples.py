"""The examples of the guides and the reference work: files load, programs compile, commands print the shown output."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import forked
import nbformat
import pytest
from cli.generated import DOCS, page_path
from models.people import ScriptedPerson
from msgspec import structs
from nbformat.v4 import new_code_cell, new_notebook
from stubs.model_server import ANSWER, StubServer

from prose_kernel.language.openprose import compile_source
from prose_kernel.language.openprose.keywords import PROPERTIES
from prose_kernel.language.source import Source
from prose_kernel.models.providers import vendors
from prose_kernel.notebook.magics.registry import all_magics
from prose_kernel.runs import languages, settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.values import full_text

PAGES = (
    "judge",
    "people",
    "providers",
    "recordings",
    "sharing",
    "testing-your-workflow",
    "typed-answers",
    "what-leaves-your-machine",
)
COMMAND_LINE = DOCS / "reference" / "cli.md"


def blocks(page: str, language: str) -> list[str]:
    text = page_path(page).read_text(encoding="utf-8")
    text = re.sub(r"^````\w.*?^````$", "", text, flags=re.MULTILINE | re.DOTALL)  # files shown with their fences
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


SETTINGS = [(page, number) for page in PAGES for number in range(len(blocks(page, "toml")))]
GUIDES = sorted(path for part in ("how-to", "explanation") for path in (DOCS / part).glob("*.md"))
PROGRAMS = [(page.stem, text) for page in GUIDES for text in blocks(f"{page.parent.name}/{page.stem}", "prose")]
EXPECTED = {"E131", "E132", "E140", "W108", "W114", "W198"}
"""Codes of examples that need more: names of earlier cells, an output filled by a loop, a principal of a team."""
MORE_SETTINGS = ("budgets", "how-to/durability", "exec-tool", "many-machines", "tools", "watching")


def test_the_pages_have_enough_examples() -> None:
    assert len(SETTINGS) >= 10
    assert len(PROGRAMS) >= 60


@pytest.mark.parametrize(("page", "number"), SETTINGS)
def test_a_settings_file_leads_to_an_answer(
    page: str, number: int, tmp_path: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is used unchanged, except that its servers and agents are replaced by stubs."""
    (tmp_path / "prose.toml").write_text(blocks(page, "toml")[number])
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GATEWAY_KEY"):
        monkeypatch.setenv(variable, "not-a-real-key")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent / "tests"))
    written = settings.load(tmp_path)
    if written.provider is None:
        return  # a valid settings file without a provider
    options = written.session_options(tmp_path)
    servers = {}
    for name in {written.provider, written.judge.provider} & set(vendors.names(options)):
        server = vendors.find(name, options)
        url = stub.url if server.kind == "anthropic" else stub.openai_url
        assert set(server.aliases) >= set(vendors.ALIASES) or name != written.provider
        servers[name] = structs.replace(
            server, base_url=url, model="ok-0", aliases=dict.fromkeys(server.aliases, "ok-0")
        )
    agents = {
        name: structs.replace(agent, command=(sys.executable, "-m", "stubs.acp_agent"), aliases={})
        for name, agent in written.agents.items()
    }
    chosen = written.changed(providers={**written.providers, **servers}, agents=agents, cassette_mode="off")

    async def run() -> str:
        workspace = Workspace(chosen, Start(tmp_path), asker=ScriptedPerson(available=False))
        try:
            return full_text(await workspace.execute('session "do: say The answer is forty-two."'))
        finally:
            await workspace.close()

    assert asyncio.run(run()).strip() == ANSWER


def test_the_program_of_the_front_page_has_no_errors() -> None:
    (text,) = re.findall(r"^```prose\n(.*?)^```$", (DOCS.parent / "README.md").read_text("utf-8"), re.M | re.S)
    assert compile_source(Source.of(text, "README.md")).diagnostics == ()


@pytest.mark.parametrize(("page", "text"), PROGRAMS)
def test_a_program_has_no_errors(page: str, text: str) -> None:
    """The text is that of a file or a cell, without magics."""
    cell = "".join(line for line in textwrap.dedent(text).splitlines(keepends=True) if not line.startswith("%"))
    found = compile_source(Source.of(cell, page)).diagnostics
    assert [one.render() for one in found if one.code not in EXPECTED] == []


@pytest.mark.parametrize(("page", "text"), [(page, text) for page in MORE_SETTINGS for text in blocks(page, "toml")])
def test_settings_of_a_guide_are_read(page: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "prose.toml").write_text(text)
    assert settings.load(tmp_path) != settings.load(tmp_path.parent)


VVM = [
    (path.name, codes, text)
    for path in [
        DOCS.parent / "README.md",
        *sorted(page for page in DOCS.rglob("*.md") if "reference" not in page.parts),
    ]
    for codes, text in re.findall(
        r"^```vvm( V\d+)?\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
]


@pytest.mark.parametrize(("page", "codes", "text"), VVM)
def test_a_program_in_vvm_has_no_errors(page: str, codes: str, text: str) -> None:
    compiled = languages.LANGUAGES["vvm"].compile(Source.of(text, page), cell=True)
    assert [found.code for found in compiled.diagnostics] == codes.split()


@pytest.mark.parametrize(
    ("page", "least"), [("contract-files", 4), ("testing-your-workflow", 5), ("notebook-to-program", 1)]
)
def test_the_commands_print_what_the_page_says(page: str, least: int, tmp_path: Path, stub: StubServer) -> None:
    for name, content in named_files(page):
        (tmp_path / name).write_text(content)
    replies = [text for text in blocks(page, "yaml") if text.startswith("sessions:")]
    (tmp_path / "replies.yaml").write_text("".join(replies[:1]))
    (tmp_path / "prose.toml").write_text(
        f'provider = "gateway"\n[providers.gateway]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nkey = ""\n'
        'model = "ok-0"\n[models.gateway]\nhaiku = "ok-0"\n'
    )
    consoles = blocks(page, "console")
    for console in consoles:
        assert "".join(printed(command, tmp_path) for command in commands(console)) == console
    assert len(consoles) >= least


def commands(console: str) -> list[str]:
    return [line.removeprefix("$ ") for line in console.splitlines() if line.startswith("$ ")]


def named_files(page: str) -> list[tuple[str, str]]:
    """Return the files that a page shows below their names."""
    text = page_path(page).read_text(encoding="utf-8")
    found = re.findall(r"^`([\w.-]+)`:\n\n(`{3,})\w+[^\n]*\n(.*?)^\2$", text, re.MULTILINE | re.DOTALL)
    return [(name, content) for name, _, content in found]


def printed(command: str, directory: Path, *, remarks: bool = True) -> str:
    """Return a command and its output as at a terminal, without the lines that differ between runs."""
    words = shlex.split(command)
    if words[0] == "prose":
        ran = forked.prose(*words[1:], cwd=directory)
    else:
        ran = subprocess.run(words, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    remark_lines = [line for line in ran.stderr.splitlines() if remarks and not line.startswith(NOT_SHOWN)]
    status = [f"[exit status {ran.returncode}]"] if ran.returncode else []
    return "\n".join([f"$ {command}", *ran.stdout.splitlines(), *remark_lines, *status]) + "\n"


NOT_SHOWN = ("run directory: ", "to resume it: ", "replayed: ", "usage: ")


def test_the_same_tasks_in_both_languages_print_what_the_page_says(tmp_path: Path) -> None:
    """This page omits remarks, which go to stderr."""
    page = "openprose-or-vvm"
    for name, content in named_files(page):
        (tmp_path / name).write_text(content)
    consoles = blocks(page, "console")
    for console in consoles:
        assert "".join(printed(command, tmp_path, remarks=False) for command in commands(console)) == console
    assert len(consoles) == 2


def test_cells_of_both_languages_run_in_one_notebook(tmp_path: Path) -> None:
    page = "openprose-or-vvm"
    for name, content in named_files(page):
        (tmp_path / name).write_text(content)
    text = page_path(page).read_text(encoding="utf-8").partition("\n## Together\n")[2]
    shown = re.findall(r"```(prose|vvm)\n(.*?)```", text, re.DOTALL)
    cells = [new_code_cell(f"%%{language}\n{cell}") for language, cell in shown]
    nbformat.write(new_notebook(cells=cells), tmp_path / "both.ipynb")
    ran = printed("prose run --provider scripted --script replies.yaml both.ipynb", tmp_path, remarks=False)
    assert ran.splitlines()[-1] == "releasing 1.1.0"
    assert {language for language, _ in shown} == {"prose", "vvm"}


# ---------------------------------------------------------------- docs/reference

REFERENCE = ("exec-and-tasks", "sessions", "jupyter")
"""Pages whose programs name the codes that they are reported with: ```` ```prose W051 ````; none means none."""

COMING = {"max-output", "stdin", "env", "format"} - set(PROPERTIES["exec"])
"""Properties that the pages describe and this version does not have yet."""


def fences(page: str, language: str) -> list[tuple[str, str]]:
    """Return the words after the language and the text of each block."""
    text = (DOCS / f"reference/{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\b([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


EXAMPLES = [(page, *fence) for page in REFERENCE for fence in fences(page, "prose")]


def test_the_reference_has_its_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize(("page", "codes", "text"), EXAMPLES)
def test_a_program_of_the_reference_is_reported_as_its_fence_says(page: str, codes: str, text: str) -> None:
    found = {diagnostic.code for diagnostic in compile_source(Source.of(text, page)).diagnostics}
    if found != set(codes.split()) and any(f"  {name}:" in text for name in COMING):
        pytest.xfail("described before it is built")
    assert found == set(codes.split())


OF_THE_REFERENCE = [
    (path.stem, text) for path in sorted(DOCS.glob("reference/*.md")) for _, text in fences(path.stem, "toml")
]


@pytest.mark.parametrize(("page", "text"), OF_THE_REFERENCE)
def test_settings_of_the_reference_are_read(page: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "prose.toml").write_text(text)
    assert settings.load(tmp_path) != settings.load(tmp_path.parent)


def test_the_reference_shows_settings() -> None:
    assert "settings" in dict(OF_THE_REFERENCE)


@pytest.mark.parametrize("page", ["exec-and-tasks", "sessions"])
def test_the_commands_of_the_reference_print_what_it_says(page: str, tmp_path: Path) -> None:
    """A block below a line such as "`fetch.prose`:" is the content of that file."""
    for name, content in named_files(f"reference/{page}"):
        (tmp_path / name).write_text(content)
    consoles = [console for _, console in fences(page, "console")]
    assert consoles
    for console in consoles:
        assert "".join(printed(command, tmp_path) for command in commands(console)) == console


# ---------------------------------------------------------------- names in the text of docs/reference

ANNOUNCED = {"--cassette-stale"}
"""An option that the pages describe and this version may not have yet."""


def inline(page: str) -> list[str]:
    """Return the code spans of a page."""
    text = (DOCS / f"reference/{page}.md").read_text(encoding="utf-8")
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", REFERENCE)
def test_settings_that_the_reference_names_exist(page: str) -> None:
    named = [match for span in inline(page) for match in re.findall(r"^\[(\w+)\] (\w+)", span)]
    known = {(one.table, one.key) for one in settings.all_settings().values()}
    assert [pair for pair in named if pair not in known] == []


@pytest.mark.parametrize("page", REFERENCE)
def test_magics_that_the_reference_names_exist(page: str) -> None:
    named = {name for span in inline(page) for name in re.findall(r"^%([a-z]\w*)", span)}
    known = {*all_magics(), "prose", "pip", "load_ext", "unload_ext"}
    assert sorted(named - known) == []
    assert named


def test_every_magic_is_in_the_reference() -> None:
    named = {name for page in REFERENCE for span in inline(page) for name in re.findall(r"%([a-z]\w*)", span)}
    assert sorted(all_magics().keys() - named) == [], "add it to docs/reference/jupyter.md"


@pytest.mark.parametrize("page", REFERENCE)
def test_options_of_prose_that_the_reference_names_exist(page: str) -> None:
    helped = COMMAND_LINE.read_text(encoding="utf-8")
    lines = [span for span in inline(page) if span.startswith(("prose ", "--"))]
    named = {option for span in lines for option in re.findall(r"--[a-z][a-z-]+", span)} - ANNOUNCED
    usage = " ".join(magic.usage for magic in all_magics().values())
    others = {"--nbval-current-env", "--dist"}
    assert sorted(option for option in named - others if option not in helped and option not in usage) == []
