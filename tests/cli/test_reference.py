"""The language reference: every code has an entry, every example behaves as its fence says, `explain` prints sections.

The words after ```` ```prose ```` or ```` ```vvm ```` state the expected outcome: the codes that the compiler reports
(none means no finding), `strict` for that profile, `run` and the code that the run fails with, `answered` and the codes
of a run whose sessions are answered, `file=NAME` for a program that the others import. A block ```` ```diff ```` in
`corrections.md` contains an example of the code above it, and the corrected program, which has no findings.
"""

from __future__ import annotations

import ast
import asyncio
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from cli.generated import PACKAGE
from click.testing import CliRunner
from machine.fakes import World
from models.people import ScriptedPerson

from prose_kernel.cli.main import cli
from prose_kernel.errors import RunError, UsageError
from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.source import Source
from prose_kernel.runs import languages, reference_pages
from prose_kernel.runs.languages import Language
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.events import Warned

CODE = re.compile(r"[EVWR]\d{3}")
LANGUAGES = ("openprose", "vvm")
PAGES = {"openprose": ("openprose", reference_pages.PROSESCRIPT_PROFILES), "vvm": ("vvm",)}
"""The pages with the entries and examples of each language."""


# ---------------------------------------------------------------- codes and entries


def codes_of(language: str, *, own: bool = False) -> set[str]:
    """Return the codes in string constants of the source outside other languages' rooms; `own`: only in its rooms."""
    others = set(LANGUAGES) - {language}
    return {
        code
        for path in PACKAGE.rglob("*.py")
        if others.isdisjoint(parts := path.relative_to(PACKAGE).parts) and (language in parts or not own)
        for code in codes_in(path)
    }


@cache
def codes_in(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    constants = ast.walk(ast.parse(text)) if CODE.search(text) else ()
    return {
        node.value
        for node in constants
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value)
    }


def entries(language: str) -> list[str]:
    headings = [heading for page in PAGES[language] for heading in reference_pages.headings(page)]
    return [heading.key for heading in headings if heading.key[:1].isalpha()]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_code_of_the_package_has_an_entry(language: str) -> None:
    """Errors that any program can have (a failed session, a full disk) are on the page of OpenProse."""
    at_run = {key for key in entries("openprose") if key.startswith("E2")}
    missing = sorted(codes_of(language, own=True) - at_run - set(entries(language)))
    assert missing == [], f"docs/reference/{language} needs an entry `#### CODE: title` for {', '.join(missing)}"
    assert sorted(codes_of(language) - set().union(*map(entries, LANGUAGES))) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_entry_is_a_code_of_the_package(language: str) -> None:
    assert sorted(set(entries(language)) - codes_of(language)) == [], "no such code is reported by the package"


def test_each_code_has_one_entry_in_the_order_of_numbers() -> None:
    by_page = [[h.key for h in reference_pages.headings(page) if h.key[:1].isalpha()] for page in PAGES["openprose"]]
    assert len(entries("openprose")) == len(set(entries("openprose")))
    for keys in by_page:
        assert keys == sorted(set(keys), key=lambda key: (key >= "E200" and key[0] == "E", key[0], key))
    keys = entries("vvm")
    assert keys == sorted(set(keys), key=lambda key: ("VR".index(key[0]), key))


@pytest.mark.parametrize("language", LANGUAGES)
def test_sections_are_numbered_without_gaps(language: str) -> None:
    numbers = [heading.key for heading in reference_pages.headings(language) if heading.key[:1].isdigit()]
    assert numbers == sorted(set(numbers), key=lambda n: [int(part) for part in n.split(".")])
    for number in numbers:
        *above, last = (int(part) for part in number.split("."))
        before = ".".join(str(part) for part in [*above, last - 1])
        assert last == 1 or before in numbers


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_of_a_language_links_to_a_section_that_contains_it(language: str) -> None:
    for word in {word for words in languages.LANGUAGES[language].words() for word in words}:
        found = reference_pages.about(word, language)
        assert found is not None and found.path.is_file(), f"{word} is in no section of the reference"
        assert re.search(rf"(?i)\b{word}\b", reference_pages.section(f"{found.page} {found.key}")), (word, found)


@pytest.mark.parametrize(
    ("word", "key"), [("env", "exec-and-tasks 2.1"), ("loop", "openprose 3.8"), ("in", "openprose 3.")]
)
def test_a_word_links_to_the_section_that_defines_it(word: str, key: str) -> None:
    found = reference_pages.about(word, "openprose")
    assert found is not None and f"{found.page} {found.key}".startswith(key)


# ---------------------------------------------------------------- examples


@dataclass(frozen=True)
class Example:
    """A program of a page: its text, the expected codes of compiler and run, and its line."""

    language: Language
    text: str
    line: int
    codes: frozenset[str]
    runs: str
    run_codes: frozenset[str]
    profile: Profile
    file: str

    @property
    def id(self) -> str:
        return f"{self.language.name}-{self.line}"

    @property
    def program(self) -> str:
        """The file name with which the program is compiled."""
        return f"program{self.language.suffixes[0]}"


def example(language: Language, words: list[str], text: str, line: int) -> Example:
    at = next((index for index, word in enumerate(words) if word in ("run", "answered")), len(words))
    return Example(
        language,
        text,
        line,
        frozenset(word for word in words[:at] if CODE.fullmatch(word)),
        words[at] if at < len(words) else "",
        frozenset(word for word in words[at:] if CODE.fullmatch(word)),
        "strict" if "strict" in words else "prosescript" if "prosescript" in words else "default",
        next((word.removeprefix("file=") for word in words if word.startswith("file=")), ""),
    )


def examples(language: Language) -> list[Example]:
    """Return the programs in a language's pages and corrections, from fences with its magic or with `diff`."""
    found = []
    for page in [*map(reference_pages.text, PAGES[language.name]), reference_pages.corrections(language.name)]:
        entry = ""
        for match in re.finditer(rf"^#### (\w+)|^```({language.magic}|diff)\b([^\n]*)\n(.*?)^```$", page, re.M | re.S):
            entry = match[1] or entry
            line = page.count("\n", 0, match.start()) + 1
            if match[2] == "diff":
                before, after = reference_pages.programs(match[4])
                found += [
                    example(language, [*match[3].split(), entry], before, line),
                    example(language, [], after, line),
                ]
            elif match[2]:
                found.append(example(language, match[3].split(), match[4], line))
    return found


EXAMPLES = [shown for language in LANGUAGES for shown in examples(languages.LANGUAGES[language])]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with the programs that examples import."""
    for shown in EXAMPLES:
        if shown.file:
            (tmp_path / shown.file).write_text(shown.text)
    (tmp_path / "itself.prose").write_text('use "./itself.prose"\n')
    for name in ("first", "second"):
        (tmp_path / f"{name}.prose").write_text('output result = "done"\n')
    return tmp_path


@pytest.mark.parametrize("shown", EXAMPLES, ids=lambda e: e.id)
def test_an_example_compiles_as_its_fence_says(shown: Example, directory: Path) -> None:
    profile = shown.profile
    program = directory / (shown.file or shown.program)
    load = shown.language.programs(directory, program=program, profile=profile).load_contract
    compiled = shown.language.compile(Source.of(shown.text, program.name), profile=profile, load=load)
    found = {diagnostic.code for diagnostic in compiled.diagnostics}
    assert found == shown.codes, "\n".join(d.render() for d in compiled.diagnostics)


RUN = [shown for shown in EXAMPLES if shown.runs == "run"]
ANSWERED = [shown for shown in EXAMPLES if shown.runs == "answered"]


@pytest.mark.parametrize("shown", RUN, ids=lambda e: e.id)
async def test_an_example_fails_as_its_fence_says(shown: Example, directory: Path) -> None:
    start = Start(directory, program_file=shown.program)
    workspace = Workspace(Settings().changed(cassette_mode="off"), start, asker=ScriptedPerson(available=False))
    try:
        with pytest.raises(RunError) as failed:
            await workspace.execute(shown.text)
        await asyncio.sleep(0)
    finally:
        await workspace.close()
    assert {failed.value.code} == shown.run_codes


@pytest.mark.parametrize("shown", ANSWERED, ids=lambda e: e.id)
async def test_an_example_with_answers_warns_as_its_fence_says(shown: Example) -> None:
    world = World()
    await world.run(shown.text)
    assert {event.code for event in world.of(Warned)} == shown.run_codes


@pytest.mark.parametrize(
    ("language", "without"),
    [
        (
            "openprose",
            [
                *("E109", "E214", "E218", "E219", "E220", "E221", "E222", "E223"),
                *("W003", "W117", "W220", "W221", "W222"),
            ],
        ),
        ("vvm", ["R217", "R221", "V710"]),
    ],
)
def test_each_code_is_shown_by_an_example(language: str, without: list[str]) -> None:
    shown = set().union(*(e.codes | e.run_codes for e in EXAMPLES if e.language.name == language))
    if language == "openprose":  # codes of contract files need whole files, and are covered by their tests
        tests = list(Path(__file__).parents[1].rglob("*contract*/*.py"))
        tests += Path(__file__).parents[1].rglob("test_contract_*.py")
        shown |= {
            code for path in tests for code in CODE.findall(path.read_text(encoding="utf-8")) if code[1:] >= "230"
        }
    assert sorted(set(entries(language)) - shown) == without


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_correction_is_of_a_code_and_has_a_program(language: str) -> None:
    parts = re.split(r"^#### (\w{4})\n", reference_pages.corrections(language), flags=re.M)[1:]
    keys, texts = parts[::2], parts[1::2]
    assert len(keys) > 50 and keys == list(dict.fromkeys(keys))
    assert set(keys) <= set(entries(language))
    assert [key for key, text in zip(keys, texts, strict=True) if "\n```" not in text or "#" * 4 in text] == []


def test_an_example_of_a_code_is_corrected() -> None:
    """The tests above compile the corrected programs. The listed codes have no correction: their mistake is in another
    file, or the program is correct."""
    without = [
        heading.key
        for page in LANGUAGES
        for heading in reference_pages.headings(page)
        if heading.key[:1].isalpha()
        and re.search(rf"^```(?:prose|vvm)\b.* {heading.key}\b", reference_pages.section(heading.key), re.M)
    ]
    assert without == ["W006", "W105", "W118", "E201", "E211", "E212", "V032", "V090", "V201"]


# ---------------------------------------------------------------- explain


def explained(*words: str) -> str:
    return CliRunner().invoke(cli, ["explain", *words], catch_exceptions=False).output


def test_a_code_is_explained() -> None:
    text = explained("E004")
    assert text.startswith("#### E004: ")
    assert "E005" not in text
    assert explained("e004") == text


def test_codes_are_unique_and_old_ones_of_vvm_are_understood() -> None:
    assert set(entries("openprose")).isdisjoint(entries("vvm"))
    assert explained("E001").startswith("#### E001: unterminated string")
    assert explained("V001").startswith("#### V001: unexpected token")
    assert explained("vvm", "E001") == explained("vvm", "V001") == explained("V001")
    assert explained("vvm", "W030") == explained("V530") != ""
    assert explained("R205") == explained("vvm", "R205")
    assert reference_pages.section("4.7", prefer="vvm").startswith("### 4.7 match")


def test_a_section_is_printed_with_its_subsections() -> None:
    assert explained("3.7").startswith("### 3.7 ")
    whole = explained("3")
    assert whole.startswith("## 3. ")
    assert explained("3.7") in whole
    assert "## 4." not in whole


def test_a_page_may_be_named() -> None:
    assert explained("openprose", "3.7") == explained("3.7") == explained("docs/reference/openprose.md", "3.7")


def test_a_page_alone_prints_its_outline() -> None:
    outline = explained("vvm").splitlines()
    assert outline[:4] == ["# VVM language reference", "", "- 1 Lexical structure", "  - 1.1 Files"]
    assert explained("index").startswith("# Reference")


def test_markers_of_generated_parts_are_not_printed() -> None:
    assert "<!--" not in explained("9.1")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("E042", "the reference has no code E042", "did you mean"),
        ("V109", "the reference has no code V109", "did you mean"),
        ("3.99", "the reference has no section 3.99", "did you mean `3.9"),
        ("13.2", "the reference has no section 13.2", "did you mean `vvm 13.2"),
        ("Exec", "the reference has no word Exec", ""),
        ("vvm Exec", "vvm has no word Exec", ""),
        ("nothing 3.7", "the reference has no page nothing", "its pages: openprose"),
    ],
)
def test_an_unknown_topic_is_one_clear_error(words: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        reference_pages.section(words)
    assert message in str(refused.value) and hint in (refused.value.hint or "")
