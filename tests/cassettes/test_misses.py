"""Messages of misses: nearest record, field, character and command, found in bounded time (sessions.md 4.2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scaling import assert_linear

from prose_kernel.cassettes import cassette_files as files
from prose_kernel.cassettes import differences, records
from prose_kernel.cassettes.keys import shortened
from prose_kernel.cassettes.records import key_of


def line(at: str, req: dict[str, Any], tried: int = 1) -> bytes:
    return records.encoded(
        {"t": "session", "v": 2, "key": key_of(req), "at": at, "try": tried, "req": req, "out": {"text": ""}}
    )


def nearest(*lines: bytes) -> differences.Nearest:
    return differences.Nearest(files.parse(b"".join(lines), Path("c.jsonl"), "c.jsonl").entries)


BASE = {
    "kind": "session",
    "model": "sonnet",
    "prompt": "Write about frogs",
    "tools": ["list", "read"],
    "perm": "sha256:1",
}

DIFFERENT: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"prompt": "Write about toads"},
        ['`prompt` differs at character 13: "Write about toads" instead of "Write about frogs"'],
    ),
    ({"prompt": "Write about frogs."}, ['`prompt` differs at character 18: "…about frogs." instead of "…about frogs"']),
    ({"system": "Be kind"}, ["`system` is new"]),
    ({"model": "opus"}, ["`model` is opus instead of sonnet"]),
    ({"model": None}, ["`model` is none instead of sonnet"]),
    ({"tools": ["read"]}, ["`tools` is read instead of list, read"]),
    ({"perm": "sha256:2"}, ["`permissions` are others than in the recording"]),
    ({"memory": "sha256:3"}, ["`memory` holds something else"]),
    ({"context": {"plan": shortened("x")}}, ["`context.plan` is new"]),
    (
        {"model": "opus", "prompt": "Write on"},
        [
            '`prompt` differs at character 7: "Write on" instead of "Write about frogs"',
            "`model` is opus instead of sonnet",
        ],
    ),
]


@pytest.mark.parametrize(
    ("recorded", "asked", "expected"),
    [
        ({"read": "workspace"}, {"read": ["docs/"]}, ["`permissions.read` is docs/ instead of workspace"]),
        ({"read": "deny"}, {"network": "allow", "read": "deny"}, ["`permissions.network` is allow instead of none"]),
        (None, {"write": "allow"}, ["`permissions.write` is allow instead of none"]),
    ],
)
def test_a47_a_miss_names_the_rule_that_differs(recorded: Any, asked: Any, expected: list[str]) -> None:
    rest = {"kind": "session", "prompt": "Write"}
    before, now = ({**rest, "perm": rules} if rules else rest for rules in (recorded, asked))
    found = nearest(line("c1/s0", before))
    assert differences.message("session c1/s0", found, now, "c1/s0").endswith(": " + "; ".join(expected))


@pytest.mark.parametrize(("change", "expected"), DIFFERENT)
def test_differing_fields_are_named(change: dict[str, Any], expected: list[str]) -> None:
    asked = {name: value for name, value in {**BASE, **change}.items() if value is not None}
    found = differences.differences(BASE, asked)
    assert found == expected


def test_members_and_long_texts() -> None:
    was = {
        **BASE,
        "context": {"a": shortened("x" * 5_000), "b": shortened("one"), "c": shortened("gone"), "d": {"missing": True}},
    }
    now = {**BASE, "context": {"a": shortened("x" * 4_999 + "y"), "b": shortened("only"), "d": shortened("found")}}
    assert differences.differences(was, now) == [
        "`context.a` differs after its first 1,000 characters (5,000 recorded, 5,000 now)",
        '`context.b` differs at character 3: "only" instead of "one"',
        "`context.c` is missing",
        "`context.d` is something else",
    ]


def test_a_difference_deep_in_a_text_is_shown_with_its_context() -> None:
    was, now = "word " * 100 + "frogs" + " end" * 50, "word " * 100 + "toads" + " end" * 50
    (difference,) = differences.differences({"prompt": was}, {"prompt": now})
    assert difference == (
        '`prompt` differs at character 501: "…d word word toads end end end end en…" instead of '
        '"…d word word frogs end end end end en…"'
    )


def test_the_same_path_comes_first_then_the_likest() -> None:
    other = {**BASE, "prompt": "Paint a house"}
    near = {**BASE, "prompt": "Write a poem about frogs"}
    finder = nearest(line("c1/1/s0", other), line("c1/2/s0", near))
    assert finder.find(BASE, "c1/1/s0") is not None
    entry, same = finder.find(BASE, "c1/1/s0") or (None, None)
    assert entry is not None
    assert (entry.line, same) == (1, True)
    entry, same = finder.find(BASE, "c9/9/s0") or (None, None)
    assert entry is not None
    assert (entry.line, same) == (2, False)
    entry, same = finder.find(BASE, "c7/1/s0") or (None, None)
    assert entry is not None
    assert (entry.line, same) == (2, False)  # a cell was inserted: paths change, texts stay
    assert nearest().find(BASE, "c1") is None


def test_an_equal_path_in_the_recording_of_another_notebook_counts_least() -> None:
    other, near = {**BASE, "prompt": "Paint a house"}, {**BASE, "prompt": "Write a poem about frogs"}
    entries = files.parse(line("c1/1/s0", other) + line("c1/2/s0", near), Path("c.jsonl"), "c.jsonl").entries

    def found(own: str, asked: dict[str, Any]) -> int:
        entry, _ = differences.Nearest(entries, own).find(asked, "c1/1/s0") or (None, None)
        assert entry is not None
        return entry.line

    assert found("c.jsonl", BASE) == 1
    assert found("d.jsonl", BASE) == 2
    assert found("d.jsonl", {**BASE, "prompt": "Something else altogether"}) == 1


def test_judgements_are_not_compared_with_sessions() -> None:
    finder = nearest(line("c1/j0", {"kind": "decide", "condition": "it is good"}))
    assert finder.find(BASE, "c1/j0") is None
    assert finder.find({"kind": "decide", "condition": "it is bad"}, "c1/j0") is not None


def test_the_time_of_misses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the beginnings of a few records are compared word by word; choosing them takes linear time."""
    compared: list[str] = []
    similarity = differences._Request.similarity

    def counted(self: differences._Request, other: differences._Request, *, exact: bool) -> tuple[float, int, int]:
        compared.extend((self.text, other.text))
        return similarity(self, other, exact=exact)

    monkeypatch.setattr(differences._Request, "similarity", counted)
    big = {**BASE, "prompt": shortened("p" * 10_000_000)}

    def finder(size: int) -> differences.Nearest:
        requests = [{**BASE, "prompt": f"Write about {n} frogs " + "and more " * 50} for n in range(size)]
        return nearest(*(line(f"c1/{n}/s0", req) for n, req in enumerate(requests)))

    differences.message("session x", finder(10_000), big, "x")
    assert 0 < len(compared) <= 2 * (differences.CANDIDATES + differences.FINALISTS)
    assert max(map(len, compared)) <= differences.COMPARED

    def work(size: int) -> Callable[[], object]:
        found = finder(size)
        found.find(big, "x")  # all records are decoded by now
        return lambda: differences.message("session x", found, big, "x")

    assert_linear(work, 1_000)
