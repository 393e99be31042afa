"""Completion in unfinished VVM text, and the documentation of its words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from language.vvm.random_trees import programs
from scaling import assert_linear

from prose_kernel.language.source import Source
from prose_kernel.language.vvm import compile_source
from prose_kernel.language.vvm import configurations as values
from prose_kernel.language.vvm.completion import offers
from prose_kernel.language.vvm.formatter import format_program
from prose_kernel.language.vvm.names import LIBRARY, RESERVED, KnownNames
from prose_kernel.language.word_catalogue import catalogue

KNOWN = KnownNames(
    frozenset({"plan", "draft"}), {"shorten": ("text", "limit")}, {"writer": None}, {"web-search": "npm:x"}
)
VALUES: dict[str, Any] = {"plan": {"title": "A", "steps": {"first": 1}, "a b": 2}, "draft": '{"note": 1}'}


def found(text: str, inside: str = "code") -> set[str]:
    return {offer.text for offer in offers(text, inside, KNOWN, VALUES)}


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        # the beginning of a line
        ("", {"agent", "import", "export", "def", "if", "match", "plan", "shorten", "len"}, {"elif", "case", "return", "break", "and"}),
        ("x = 1\n", {"agent", "x"}, {"elif"}),
        ("if plan:\n  pass\n", {"elif", "else", "if"}, {"except"}),
        ("if plan:\n  ", {"pass"}, {"elif", "agent", "import"}),
        ("try:\n  pass\n", {"except", "finally"}, {"else"}),
        ("try:\n  pass\nexcept as e:\n  pass\n", {"finally", "e"}, {"except"}),
        ("match plan:\n  ", {"case"}, {"if", "plan"}),
        ("match plan:\n  case _:\n    pass\n  ", {"case"}, {"if"}),
        ("match plan:\n  case _:\n    ", {"pass", "if"}, {"case"}),
        ("choose plan by ?`x` as y:\n  ", {"option"}, {"case"}),
        ("constrain plan():\n  ", {"require"}, {"if"}),
        ("def f(a, b):\n  ", {"return", "a", "b", "f"}, {"break", "agent"}),
        ("for x in plan:\n  ", {"break", "continue", "x"}, {"return"}),
        ("# a comment\nif plan:\n  # another\n  pass\n# a third\n", {"else"}, set()),
        # values and operators
        ("x = ", {"plan", "shorten", "writer", "true", "it", "not", "pmap"}, {"if", "and"}),
        ("x = plan ", {"and", "or"}, {"plan"}),
        ("if ", {"plan", "not"}, {"if"}),
        ("x = len[", {"plan", "not"}, {"value="}),
        ("for x ", {"in"}, {"and"}),
        ("for x in ", {"plan"}, {"if"}),
        ("choose plan ", {"by"}, {"as"}),
        ("choose plan by ?`x` ", {"as"}, {"by"}),
        ("except ", {"as"}, {"plan"}),
        ("case ", {"error", "_"}, {"plan"}),
        ("with ", {"input"}, {"plan"}),
        ("with input ", {"plan"}, {"input"}),
        ("def ", set(), {"plan"}),
        ("for ", set(), {"plan"}),
        ("agent ", set(), {"writer"}),
        ("raise ", set(), {"plan"}),
        ("x = [1, ", {"plan"}, {"if"}),
        ("x = [\n  ", {"plan"}, {"if", "agent"}),
        # agents
        ("x = @", {"writer"}, {"plan", "len", "shorten", "if"}),
        ("agent scribe()\nx = @", {"writer", "scribe"}, set()),
        ('from "./t" import @lead as boss\nx = @', {"boss"}, {"lead"}),
        ('from "./t" import tool\nx = ', {"tool"}, set()),
        ("export @", {"writer"}, {"plan", "len"}),
        ("export ", {"plan", "pack"}, {"len"}),
        # keys
        ("agent x(", {"model=", "prompt=", "skills=", "permissions=", "memory="}, {"retry=", "plan"}),
        ('agent x(model="a", ', {"prompt="}, {"plan"}),
        ("agent x(model=", {'"opus"', '"sonnet"', '"haiku"'}, set()),
        ("agent x(memory={", {"scope: ", "key: ", "path: "}, {"model="}),
        ("agent x(memory={scope: ", {'"project"', '"user"', '"path"'}, set()),
        ("agent x(permissions={", {"bash: ", "network: "}, set()),
        ("agent x(permissions=perm(", {"read=", "bash="}, {"model="}),
        ("agent x(permissions=perm(bash=", {'"allow"', '"deny"', '"prompt"'}, set()),
        ("x = @{", {"model="}, {"plan"}),
        ("x = @writer.with(", {"model=", "memory="}, {"plan"}),
        ("x = @writer.", {"with"}, {"title"}),
        ("x = writer.", {"with"}, set()),
        ("x = @writer `task`(", {"retry=", "timeout=", "backoff=", "memory_mode=", "plan"}, {"model="}),
        ("x = @writer `task`(plan, ", {"retry="}, set()),
        ("x = @writer `task`(memory_mode=", {'"continue"', '"dry_run"', '"fresh"'}, set()),
        ("x = ?`task`(", {"plan"}, {"retry="}),
        ("constrain plan(", {"attempts=", "time=", "budget="}, {"plan"}),
        ("match plan:\n  case error(", {"kind=", "_"}, {"plan"}),
        ("x = shorten(", {"text=", "limit=", "plan"}, set()),
        ("x = refine(plan, ", {"max=", "done=", "step="}, set()),
        ("x = {", set(), {"plan"}),
        ("x = {a: ", {"plan", "true"}, set()),
        # members
        ("x = plan.", {"title", "steps"}, {"a b", "with", "plan"}),
        ("x = plan.steps.", {"first"}, {"title"}),
        ("x = draft.", {"note"}, {"title"}),
        ("x = nothing.", set(), {"title"}),
    ],
)  # fmt: skip
def test_offers_fit_their_place(text: str, wanted: set[str], unwanted: set[str]) -> None:
    there = found(text)
    assert wanted <= there
    assert not unwanted & there


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('agent x(model="', {"opus", "sonnet", "haiku"}),
        ('agent x(memory={scope: "', {"project", "user", "path"}),
        ('x = @writer `t`(backoff="', {"fixed", "exponential"}),
        ('x = @writer `t`(memory_mode="', {"continue", "dry_run", "fresh"}),
        ('agent x(permissions=perm(network="', {"allow", "deny", "prompt"}),
        ('match x:\n  case error(kind="', {"timeout", "rejected", "constraint_violation", "thrown", "spawn_failed"}),
        ('agent x(skills=["', {"web-search"}),
        ('import "docs" from "./docs"\nagent x(skills=["web-search", "', {"docs", "web-search"}),
        ('x = "', set()),
        ('x = ["a", "', set()),
    ],
)
def test_strings_offer_the_values_of_their_key(text: str, wanted: set[str]) -> None:
    there = found(text, "string")
    assert wanted <= there and bool(there) == bool(wanted)


def test_imports_offer_paths() -> None:
    for text in ('from "./te', 'import "a" from "', 'x = 1\nfrom "'):
        assert [offer.kind for offer in offers(text, "string", None, {})] == ["programs"]


def test_a_template_offers_names_and_members_after_a_brace() -> None:
    assert {"plan", "x", "len"} <= found("x = 1\ny = @writer `On {", "marker")
    assert found("y = @writer `On {plan.", "marker") == {"title", "steps"}
    assert found("y = @writer `On pl", "marker") == set()


def test_each_offer_says_what_it_is() -> None:
    kinds = {offer.text: offer.kind for offer in offers("def f():\n  pass\nx = 1\ny = ", "code", KNOWN, {})}
    assert [kinds[name] for name in ("f", "x", "plan", "shorten", "writer", "len", "true")] == [
        *("function", "variable", "variable", "function", "agent", "function", "keyword")
    ]


@given(programs.map(format_program), st.integers(0, 400))
def test_any_place_of_any_text_is_fine(text: str, at: int) -> None:
    for inside in ("code", "string", "triple", "marker"):
        for offer in offers(text[:at], inside, KNOWN, VALUES):
            assert offer.text or offer.kind == "programs"


def test_completion_in_a_large_cell_costs_what_its_size_says() -> None:
    def work(count: int) -> Callable[[], object]:
        text = "".join(f'name{i} = "text {i}" # remark\n' for i in range(count)) + "x = "
        return lambda: list(offers(text, "code", KNOWN, VALUES))

    assert_linear(work, 500)


# ---------------------------------------------------------------- documentation


def test_every_word_is_documented() -> None:
    assert set(WORDS.keywords) == RESERVED
    assert set(WORDS.functions) == set(LIBRARY)
    owned = {owner: {word for word, entry in WORDS.properties.items() if owner in entry.owners} for owner in OWNERS}
    assert owned["agent"] == set(values.CONFIGURATION_KEYS)
    assert owned["permissions"] == set(values.PERMISSION_KEYS)
    for key, usual in USUAL.items():
        assert tuple(json.loads(value) for value in WORDS.properties[key].values) == usual


WORDS = catalogue("vvm")
KEYWORDS = {**WORDS.keywords, **WORDS.functions}
OWNERS = ("agent", "agent call", "permissions", "memory", "constrain")
USUAL = {
    "bash": values.PERMISSION_WORDS,
    "network": values.PERMISSION_WORDS,
    "scope": values.MEMORY_SCOPES,
    "memory_mode": values.MEMORY_MODES,
    "backoff": values.BACKOFFS,
}


@pytest.mark.parametrize("word", [*KEYWORDS, *WORDS.properties])
def test_every_example_is_a_correct_program_with_its_word(word: str) -> None:
    entry = KEYWORDS.get(word) or WORDS.properties[word]
    compiled = compile_source(Source.of(entry.example), load=lambda path: None)
    assert [
        found.render() for found in compiled.diagnostics if found.severity == "error" and found.code != "V090"
    ] == []
    assert word in entry.example
    assert entry.summary.endswith(".") and "\n" not in entry.summary
    assert format_program(compiled.program) == entry.example + "\n"


@pytest.mark.parametrize("word", WORDS.properties)
def test_every_usual_value_of_a_key_is_one(word: str) -> None:
    for value in WORDS.properties[word].values:
        text = f"x = {{{word}: {value}}}\nexport x"
        assert compile_source(Source.of(text)).ok


def test_after_the_sign_of_agents_are_agents_and_possible_agents() -> None:
    assert found("@") == {"writer"}
    assert found("held = 1\n@") == {"writer", "held"}
