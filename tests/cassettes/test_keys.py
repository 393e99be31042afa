"""Keys of requests (sessions.md 4.2): they do not depend on differences between runs and machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from prose_kernel.cassettes import records
from prose_kernel.cassettes.keys import Identity
from prose_kernel.cassettes.portable_redaction import Redaction
from prose_kernel.cassettes.records import key_of
from prose_kernel.errors import StateError
from prose_kernel.runtime.ports import (
    AgentMemory,
    AnswerFile,
    BlockScope,
    CommandResult,
    ContextItem,
    JudgeRequest,
    Key,
    SessionRequest,
)
from prose_kernel.runtime.session_options import Surroundings
from prose_kernel.runtime.values import ExecText, Reference


def identity(cwd: str = "/work/a", host: Any = None, tools: tuple[str, ...] = ("read", "list")) -> Identity:
    redaction = Redaction({}, (), {cwd: "«ws»", "/home/al": "«home»"})
    return Identity(redaction, Surroundings(cwd, environment={"HOME": "/home/al"}), lambda _: tools, host or {})


def reference(text: str) -> Reference:
    return Reference(Key("x"), lambda: text)


REQUEST = SessionRequest(
    "session", "Write about {x}", "c1/1/s0", "You write.", "writer", "first", "sonnet",
    (ContextItem("plan", "bindings/plan.md", content="the plan"),), (), {"read": ("src/**",)},
)  # fmt: skip


def key(request: SessionRequest, made: Identity | None = None) -> str:
    return key_of((made or identity()).session(request))


CHANGED = [
    {"kind": "resume"},
    {"task": "Write about y"},
    {"system": "You paint."},
    {"model": "opus"},
    {"context": (ContextItem("plan", "bindings/plan.md", content="another plan"),)},
    {"context": (ContextItem("plan", missing=True),)},
    {"context": None},
    {"permissions": {"read": ("**",)}},
    {"permissions": {}},
    {"skills": ("review",)},
    {"memory": AgentMemory("writer", "true", "d", True, "what came before")},
]
SAME = [
    {"at": "c9/4/s3"},
    {"agent": "painter"},
    {"label": "second"},
    {"scope": BlockScope(7, "b", 2, 1)},
    {"target": AnswerFile("a", "bindings/a.md", "# a")},
    {"program": "other.prose", "position": 9, "finished": ("a", "b")},
    {"attempt": 2, "timeout": 3.0},
    {"memory": AgentMemory("writer", "true", "d", False)},
    {"task": "Write about {x}  \r\n"},
    {"context": (ContextItem("plan", "elsewhere/plan.md", content="the plan\n"),)},
    {"context": (ContextItem("plan", text="the plan"),)},
    {"context": (ContextItem("idea", "bindings/plan.md", content="the plan"),)},
    {"context": (ContextItem("plan", "x", content=reference("the plan")),)},
    {"permissions": {"read": ("src/**", "src/**")}},
]


@pytest.mark.parametrize("change", CHANGED, ids=str)
def test_fields_that_count(change: dict[str, Any]) -> None:
    assert key(structs.replace(REQUEST, **change)) != key(REQUEST)


@pytest.mark.parametrize("change", SAME, ids=str)
def test_fields_that_do_not_count(change: dict[str, Any]) -> None:
    assert key(structs.replace(REQUEST, **change)) == key(REQUEST)


def test_tools_and_the_rules_of_the_host_count() -> None:
    asked = structs.replace(REQUEST, permissions={})
    assert key(asked, identity(host={"read": ("docs/",)})) != key(asked)
    assert key(REQUEST, identity(tools=("read",))) != key(REQUEST)
    assert key(REQUEST, identity(tools=("list", "read"))) == key(REQUEST)


@pytest.mark.parametrize(
    ("tools", "counting"),
    [
        (("read", "list", "search"), {"read"}),
        (("read", "fetch"), {"read", "network"}),
        (("write",), {"write"}),
        (("edit",), {"read", "write"}),
        (("Exec",), {"execute", "read", "write", "network"}),
        (("exec_command", "TaskList"), {"bash", "read", "write", "network"}),
        (("tools:weather",), {"tools"}),
        ((), set()),
    ],
)
def test_a47_only_rules_for_tools_of_the_request_count(tools: tuple[str, ...], counting: set[str]) -> None:
    asked = structs.replace(REQUEST, permissions={})
    plain = identity(tools=tools).session(asked)
    assert set(plain.get("perm", ())) == counting
    for kind in ("read", "write", "execute", "bash", "network", "tools"):
        other = identity(host={kind: "allow"}, tools=tools).session(asked)
        assert (key_of(other) != key_of(plain)) == (kind in counting)


def test_another_workspace_and_home_have_the_same_keys() -> None:
    def there(cwd: str) -> str:
        asked = structs.replace(REQUEST, task=f"Look at {cwd}/src", context=(ContextItem("a", text=f"in {cwd}"),))
        return key(asked, identity(cwd))

    assert there("/work/a") == there("/mnt/elsewhere/b c")


def test_another_secret_has_the_same_key() -> None:
    def there(secret: str) -> str:
        made = Identity(Redaction({"API_KEY": secret}), Surroundings("/w"), lambda _: (), {})
        return key(structs.replace(REQUEST, task=f"Use {secret}"), made)

    assert there("the-secret-of-one") == there("quite another secret")


def test_unreadable_files_do_not_stop_the_reading(tmp_path: Path) -> None:
    (tmp_path / "memory.md").write_text("remember")
    (tmp_path / "skill.md").write_text("be kind")

    def made() -> dict[str, Any]:
        lost = Reference(Key("x"), lambda: (_ for _ in ()).throw(StateError("gone")))
        items = (
            ContextItem("m", "memory.md"), ContextItem("gone", "gone.md"), ContextItem("lost", "x", content=lost),
            ContextItem("m", text="twice"),
        )  # fmt: skip
        return identity(str(tmp_path)).session(structs.replace(REQUEST, context=items, skills=("skill.md", "by-name")))

    before = made()
    assert before["context"]["m"]["head"] == "remember"
    assert before["context"]["gone"] == {"missing": True}
    assert before["context"]["m~2"]["head"] == "twice"
    assert before["skills"]["by-name"] == "named"
    (tmp_path / "memory.md").write_text("forget")
    (tmp_path / "skill.md").write_text("be quick")
    after = made()
    assert after["context"]["m"] != before["context"]["m"]
    assert after["skills"]["skill.md"] != before["skills"]["skill.md"]


def test_a_file_below_the_home_directory_is_the_same_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "skill.md").write_text("be kind")

    def made(directory: str) -> dict[str, Any]:
        items = (ContextItem("s", f"{directory}/skill.md"),)
        asked = structs.replace(REQUEST, context=items, skills=(f"{directory}/skill.md",))
        return identity(str(tmp_path / "work")).session(asked)

    assert made("~") == made(str(tmp_path))
    assert made("~")["context"]["s"]["head"] == "be kind"
    assert "named" not in made("~")["skills"].values()


def test_the_output_of_a_command_counts_alike_by_value_and_by_reference() -> None:
    from prose_kernel.runtime.value_text import full_content

    value = ExecText("out\n", CommandResult("exited", 1, "out\n", "err\n"))
    by_reference = structs.replace(REQUEST, context=(ContextItem("a", "x", content=value),))
    by_value = structs.replace(REQUEST, context=(ContextItem("a", text=full_content(value)),))
    assert key(by_reference) == key(by_value)


def test_long_texts_are_recorded_by_their_beginning() -> None:
    asked = structs.replace(REQUEST, task="p" * 200_000, context=(ContextItem("big", text="c" * 10_000_000),))
    req = identity().session(asked)
    assert len(records.canonical(req)) < 5_000
    assert req["prompt"]["chars"] == 200_000
    other = structs.replace(asked, context=(ContextItem("big", text="c" * 9_999_999 + "d"),))
    assert key(other) != key(asked)


@given(st.text(), st.text(), st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_a_key_can_be_made_again_from_its_record(task: str, system: str, context: dict[str, str]) -> None:
    items = tuple(ContextItem(name, text=text) for name, text in context.items())
    req = identity().session(structs.replace(REQUEST, task=task, system=system, context=items))
    line = records.encoded({"t": "session", "key": key_of(req), "at": "c1", "req": req, "out": {}})
    again = records.read(line[:-1])
    assert key_of(records.mapping(again.req)) == again.key
    assert key_of(dict(reversed(list(req.items())))) == again.key


def test_a_judgement_is_known_by_its_question_and_what_it_is_shown() -> None:
    made = identity()

    def key_for(text: str, *, kind: str = "decide", options: tuple[str, ...] = (), **bindings: Any) -> str:
        return key_of(made.judgement(kind, JudgeRequest(text, "c1/j0", bindings=bindings), options))

    base = key_for("draft is good", draft="one", other="x")
    assert base == key_for("draft is good", draft="one", other="y", more="z")
    assert base != key_for("draft is good", draft="two", other="x")
    assert base != key_for("draft is bad", draft="one", other="x")
    assert base != key_for("draft is good", kind="choose", options=("a", "b"), draft="one")
    assert key_for("it is good", draft="one") != key_for("it is good", draft="two")
    asked = JudgeRequest("draft is good", "c1/j0", bindings={"draft": "one"}, recent=("a",), loop_index=3)
    assert key_of(made.judgement("decide", asked)) == base
