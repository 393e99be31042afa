"""Secrets and locations are removed from a text before it is hashed or written, in linear time (sessions.md 4.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from published_secrets import PUBLISHED, secret_part
from scaling import assert_linear

from prose_kernel.cassettes.portable_redaction import Redaction
from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.errors import UsageError
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.redaction import SecretReplacer, masked, secret_finds
from prose_kernel.runtime.secret_patterns import SHAPES as FINDS
from prose_kernel.runtime.secret_patterns import holds_private_key, looks_secret, secret_in
from prose_kernel.runtime.session_options import CassetteOptions, Surroundings

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA1234567890abcdefGHIJ\nabcd+/==\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

SHAPES = {
    "sk-ant-api03-abcdefghijklmnop": "api-key",
    "sk-proj-0123456789abcdef_-x": "api-key",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345": "github",
    "github_pat_11ABCDEFG0123456789_abcdefghijklmnop": "github",
    "glpat-abcdefghij0123456789": "gitlab",
    "xoxb-123456789012-abcdefghij": "slack",
    "AIzaSyA0123456789abcdefghijklmnopqrstuv": "google",
    "hf_abcdefghijklmnopqrstuvwxyz012345": "huggingface",
    "sk_live_0123456789abcdefgh": "stripe",
    "AKIAIOSFODNN7EXAMPLE": "aws",
    JWT: "jwt",
    PEM: "pem",
    PEM.partition("\nabcd")[0]: "pem",
}


@pytest.mark.parametrize(("secret", "name"), SHAPES.items())
def test_token_shapes(secret: str, name: str) -> None:
    redaction = Redaction()
    assert redaction.text(f'key = "{secret}", then') == f'key = "«secret:{name}»", then'
    assert redaction.text(secret) == f"«secret:{name}»"
    assert redaction.text(f"a{secret}") == f"a{secret}" or name in ("pem", "jwt")


@pytest.mark.parametrize(
    "text",
    [
        "a task-oriented-language-for-people",
        "risk-free",
        "sk-short",
        "AKIAIOSFODNN7",
        "eyJ.eyJ.x",
        "-----BEGIN CERTIFICATE-----",
    ],
)
def test_text_that_only_resembles_a_secret_stays(text: str) -> None:
    assert Redaction().text(text) == text


def test_values_of_secret_looking_variables() -> None:
    environment = {
        "API_KEY": "c0rrect-h0rse", "MY_PASSWORD": "battery-staple", "SHORT_TOKEN": "1234567", "EDITOR": "correct-emacs",
        "SSH_KEY_FILE": "/home/me/.ssh/id", "LONGER_SECRET": "c0rrect-h0rse-battery", "Z_API_KEY": "c0rrect-h0rse",
    }  # fmt: skip
    redaction = Redaction(environment)
    assert redaction.text("c0rrect-h0rse, c0rrect-h0rse-battery") == "«env:API_KEY», «env:LONGER_SECRET»"
    for text in ("1234567", "correct-emacs", "/home/me/.ssh/id"):
        assert redaction.text(text) == text


def test_custom_expressions() -> None:
    redaction = Redaction({}, [r"project \w+", r"(?i)customer-\d+"])
    assert redaction.text("Project X, project Zeta: CUSTOMER-12") == "Project X, «secret:custom»: «secret:custom»"
    with pytest.raises(UsageError, match="not a regular expression"):
        Redaction({}, ["("])
    assert Redaction({}, ["x*"]).text("axb") == "a«secret:custom»b"


def test_locations_are_removed_from_keys_and_stay_in_answers() -> None:
    redaction = Redaction(
        {}, (), {"/home/al": "«home»", "/home/al/work": "«ws»", ".prose/runs/20260101-000000-abcdef": "«run»"}
    )
    text = "see /home/al/work/a.py, /home/al/x, /home/alice and file:///home/al/work. Not /mnt/home/al/work nor /home/al/work.old"
    assert redaction.identity(text) == (
        "see «ws»/a.py, «home»/x, /home/alice and file://«ws». Not /mnt/home/al/work nor «home»/work.old"
    )
    assert redaction.identity(".prose/runs/20260101-000000-abcdef/bindings/a.md") == "«run»/bindings/a.md"
    assert redaction.text(text) == text


def test_whitespace_and_unicode_forms_that_keys_ignore() -> None:
    same = Redaction().identity
    assert same("one\r\ntwo  \n\tthree\t\n\n") == "one\ntwo\n\tthree"
    assert same("Cafe\u0301") == same("Caf\u00e9")
    assert same("a\ud800b") == "a\ufffdb"


@given(st.text(), st.text(min_size=8, alphabet=st.characters(codec="utf-8")))
def test_a_secret_never_gets_through(text: str, secret: str) -> None:
    assume(looks_secret(secret))
    redaction = Redaction({"TOKEN": secret})
    for result in (redaction.text(text + secret + text), redaction.identity(text + secret + text)):
        assert secret not in result or secret in "«env:TOKEN»" or "«" in secret or secret in text + text


@given(st.text())
def test_redacting_twice_changes_nothing(text: str) -> None:
    redaction = Redaction({"TOKEN": "a very secret value"}, (), {"/home/al": "«home»"})
    once = redaction.identity(text + "a very secret value /home/al/x")
    assert redaction.identity(once) == once


def test_data_is_redacted_at_any_depth() -> None:
    redaction = Redaction({"TOKEN": "a very secret value"})
    data = {"a": ["a very secret value", 1, None], "b": {"a very secret value": True}}
    assert redaction.data(data) == {"a": ["«env:TOKEN»", 1, None], "b": {"«env:TOKEN»": True}}


def test_private_keys_are_detected() -> None:
    assert holds_private_key(f"x {PEM}")
    assert holds_private_key("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert not holds_private_key("-----BEGIN PUBLIC KEY-----")


@pytest.mark.parametrize(
    "unit", ["-----BEGIN RSA PRIVATE KEY-----\n", "eyJ", "eyJaaaaaaaa.", "sk-", "sk-a ", "ghp_", "plain words "]
)
def test_the_time_is_linear_in_the_text(unit: str) -> None:
    redaction = Redaction({"TOKEN": "a very secret value"}, (), {"/home/al": "«home»"})

    def work(size: int) -> Callable[[], object]:
        text = unit * (size // len(unit))
        return lambda: redaction.identity(text)

    assert_linear(work, 200_000)


@pytest.mark.parametrize(
    "value",
    [
        "production",
        "development",
        "12345678",
        "localhost",
        "correct-horse",
        "/run/secrets/key",
        "disabled",
        "aaaaaaaaaaaa1",
    ],
)
def test_a12_ordinary_words_are_not_redacted(value: str) -> None:
    assert Redaction({"API_TOKEN": value}).text(f"deploy to {value}") == f"deploy to {value}"


@pytest.mark.parametrize(
    "value",
    [
        "sk-abcdefgh", "hunter2!", "Zx9_kk31-PQ", "correct-horse-battery-staple", "qwertzuiopasdfghjklyx",
        "postgres://me:pa55@host/db", "0f3a9c77b1d2e4f6",
    ],
)  # fmt: skip
def test_a12_text_that_looks_like_a_secret_is_redacted(value: str) -> None:
    assert Redaction({"API_TOKEN": value}).text(f"use {value} now") == "use «env:API_TOKEN» now"


def test_a_lone_surrogate_is_recorded_as_a_replacement_and_is_not_a_secret(tmp_path: Path) -> None:
    """A lone surrogate cannot be written as UTF-8."""
    where = Surroundings(str(tmp_path))
    cassettes = Cassettes(CassetteOptions(), where, SystemClock())
    store = cassettes.store
    answer = {"question": "may it?", "answer": "yes \ud83d"}
    store.add_nowait("ask", "c1/1/s0", answer, store.meta())
    recorded = (tmp_path / "cassettes" / "session.jsonl").read_text().splitlines()[-1]
    assert json.loads(recorded)["out"]["answer"] == "yes \ufffd"
    assert not cassettes.warnings


# ---------------------------------------------------------------- A38: a single list of patterns


@pytest.mark.parametrize("vendor", PUBLISHED)
def test_a38_published_formats_are_found_wherever_texts_are_written(vendor: str) -> None:
    for token in PUBLISHED[vendor]:
        for shown in (
            token,
            f"see {token} here",
            f'{{"a": "{token}"}}' if '"' not in token else token,
            f"a\n{token}\nb",
        ):
            kept = Redaction({}).text(shown)
            secret = secret_part(token)
            assert "«secret:" in kept and secret not in kept, (shown, kept)
            assert masked(shown) != shown, shown  # output of commands
            assert secret_in(shown) is not None, shown  # what is kept from memories


def test_a38_a_password_in_a_url_is_secret_for_any_variable_name() -> None:
    redaction = Redaction(
        {"OPENPROSE_POSTGRES_URL": "postgresql://me:Tr0ub4dor%21@db/x", "MY_DB": "redis://:swordfish9@h"}
    )
    assert redaction.text("password=Tr0ub4dor! or Tr0ub4dor%21") == (
        "password=«env:OPENPROSE_POSTGRES_URL» or «env:OPENPROSE_POSTGRES_URL»"
    )
    assert redaction.text("swordfish9") == "«env:MY_DB»"


@pytest.mark.parametrize(
    "shown",
    [
        "Authorization: required for all of /api", "authorization is a bearer of news", "a bearer token is needed",
        "http://localhost:8888/lab?token=x", "see https://example.org:8080/a@b and me@example.org", "SK and SG.",
        "the ratio 3:4@home", "git@github.com:me/x.git", "v1.2.3 of M.abc", "this.is.fine", "s.replace(x)", "signed=1&sig=short",
        "https://docs.rs/axum/latest/axum/?search=a:b", "std::vector<int>::iterator", "10:AA", "sk-learn and sklearn",
    ],
)  # fmt: skip
def test_a38_ordinary_text_stays(shown: str) -> None:
    assert Redaction({}).text(shown) == shown


OWN = {"MY_TOKEN": "hunter2-very-secret-99", "DB_PASSWORD": "пароль-и-ещё", "API_KEY": "abcdefgh1234wxyz"}
PIECES = [*(fixed for find in FINDS for fixed in find.fixed), *OWN.values(), *(token for token, _ in SHAPES.items())]


@given(
    st.lists(st.sampled_from([*PIECES, " ", "\n", "x", "0123456789abcdefghij", "authorization: Bearer "]), max_size=8)
)
def test_a_match_is_replaced_whichever_character_is_searched_first(pieces: list[str]) -> None:
    finds, text = (*secret_finds(OWN), *FINDS), "".join(pieces)
    present = [find for find in finds if find.may_be_in(text)]
    whole = "|".join(f"(?P<k{at}>{find.kept})(?P<f{at}>{find.expression})" for at, find in enumerate(present))

    def word(found: re.Match[str]) -> str:
        at = next(at for at in range(len(present)) if found[f"f{at}"] is not None)
        return found[f"k{at}"] + present[at].word

    assert SecretReplacer(finds)(text) == (re.sub(whole, word, text) if present else text)
