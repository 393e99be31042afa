"""Amendment A37: reading foreign text takes linear time everywhere."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

import pytest
from scaling import assert_linear

from prose_kernel.cassettes.portable_redaction import Redaction
from prose_kernel.judging import facts
from prose_kernel.language import text
from prose_kernel.machine.vvm import memory_patches, values
from prose_kernel.machine.vvm.agent_calls import summary_of
from prose_kernel.models import session_prompt
from prose_kernel.processes import environment
from prose_kernel.processes.exec_tool import audit
from prose_kernel.processes.tasks.records import display_of
from prose_kernel.runtime import redaction, secret_patterns, structured_text
from prose_kernel.runtime.ports import SessionResult
from prose_kernel.runtime.secret_patterns import looks_secret
from prose_kernel.views import escaping

REDACTION = Redaction({"API_TOKEN": "A9x-secret-value-77"})


def _collection(given: str) -> object:
    try:
        return structured_text.collection(given)
    except Exception:
        return None


def _server_message(given: str) -> object:
    from prose_kernel.models.providers import model_errors  # imports the model SDK

    return model_errors._clean(given, model_errors.ErrorPlace("stub", key="k" * 8))


READERS: dict[str, Callable[[str], object]] = {
    "json in text": structured_text.json_in,
    "collection": _collection,
    "binding file": structured_text.value_of,
    "secret in": secret_patterns.secret_in,
    "redacted recording": REDACTION.text,
    "key of a recording": REDACTION.identity,
    "looks secret": looks_secret,
    "redacted command": redaction.masked,
    "shown command": display_of,
    "argument in the audit": lambda given: audit.display([given]),
    "markdown": escaping.markdown,
    "clip": escaping.clip,
    "inline code": escaping.inline_code,
    "terminal": escaping.terminal,
    "one line": text.one_line,
    "memory patch": memory_patches.split,
    "json of VVM": values.json_view,
    "summary of VVM": lambda given: summary_of(SessionResult(given, reply=given)),
    "confirmation": session_prompt.confirmation,
    "empty": facts.empty,
    "number": facts.number,
    "items": lambda given: facts.count(given, "items"),
    "what a server said": _server_message,
}

UNITS = (
    *(" ", "\n", "a", "-", "_", "`", "'", '"', "[", "{", "<", "=", ":", "#", "*", ".", "\\", "1", "\x1b["),
    *(
        "``` \n",
        "```json\n",
        "~~~\n",
        "````\n```\n",
        "- a\n",
        " \n",
        "<<a\n",
        "<<a \n a\n",
        "<a ",
        "a://",
        "://a:",
        "a@",
    ),
    *("[a](", "![", "[a]: ", "token", "token=", "token ", "token: ", "--token", "api-key: ", "authorization:"),
    *("bearer ", "sk-", "-eyJa.eyJ", "eyJaaaaaaaa.", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", " -c '", " -u a:"),
    *("Summary:\n", "Binding written:\n", "# run:\n", "---\n", "\nsource:\n```", "x = [", "none, ", "1,234,"),
)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_a37_foreign_text_costs_linear_time(reader: str) -> None:
    read = READERS[reader]
    for unit in UNITS:
        for end in ("", "\0x"):

            def work(size: int, unit: str = unit, end: str = end) -> Callable[[], object]:
                given = f"x{unit * (size // len(unit))}{end}"
                return lambda: read(given)

            began = time.process_time()
            work(10_000)()
            if time.process_time() - began < 0.05:  # quadratic time would exceed this at such a length
                continue
            try:
                assert_linear(work, 5_000)
            except AssertionError as problem:
                raise AssertionError(f"{reader}: {unit!r} again and again: {problem}") from None


def test_a37_twenty_thousand_fences_are_read_in_linear_time() -> None:
    def work(size: int) -> Callable[[], object]:
        given = "".join(f"{'`' * (3 + number % 50)}json\n" for number in range(size)) + "```json\n[1]\n```\n"
        return lambda: structured_text.json_in(given)

    assert_linear(work, 5_000)


def test_a37_fences_are_found_as_the_reference_says() -> None:
    """Compare the fenced blocks of short texts with their definition as a regular expression."""
    rule = re.compile(r"(?mis)^(`{3,})[ \t]*(?:json\w*)?[ \t]*\n(.*?)\n?^\1`*[ \t]*$")
    pieces = ("```", "````", "```json", "```JSONL", "``` ", "1", "{}", "", "``", "  ```", "```x", "[1]")
    chosen = random.Random(37)
    for _ in range(3000):
        given = "\n".join(chosen.choices(pieces, k=chosen.randint(0, 7)))
        found = rule.search(given)
        assert structured_text._fenced(given) == (found[2] if found else None), given


def test_a_folded_text_contains_each_letter_that_a_pattern_matches() -> None:
    """Therefore a pattern that is skipped could not have matched."""
    letter = re.compile("(?i)[a-z]")
    found = {one: secret_patterns.folded(one) for one in map(chr, range(0x3000)) if letter.fullmatch(one)}
    assert len(found) > 52
    assert all(len(small) == 1 and re.fullmatch(f"(?i){small}", one) for one, small in found.items())


@pytest.mark.parametrize("text", ["", "-", "plain words. And more.", "a_b.c@d: 1 = 2"])
def test_a_text_without_secrets_stays(text: str) -> None:
    assert (redaction.masked(text), environment.holds_secret(text), secret_patterns.secret_in(text)) == (
        text,
        False,
        None,
    )


@pytest.mark.parametrize("name", ["pa\u017fsword", "CREDENT\u0130AL", "api_\u212aey", "authorizat\u0131on: x"])
def test_letters_that_fold_to_others_hide_no_secret(name: str) -> None:
    assert "hunter2-x" not in redaction.masked(f"{name}=hunter2-x" if ":" not in name else f"{name[:-1]}hunter2-x")
