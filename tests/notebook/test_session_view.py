"""Sessions in the output of a cell, event by event: streaming, attempts, tools, hostile text."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from markdown_it import MarkdownIt
from notebook.recording import Recording, place, step
from scaling import assert_linear, seconds
from waiting import eventually

from prose_kernel.errors import SessionError
from prose_kernel.runtime import events
from prose_kernel.runtime.events import Event
from prose_kernel.runtime.ports import Key, SessionRequest, SessionResult, ToolUse, Usage
from prose_kernel.views.cell_view import MAX_DISPLAYS, CellView
from prose_kernel.views.output_limit import Limits
from prose_kernel.views.session_cards import LIVE, SHOWN, Streamed, live_display


class Talk:
    """The events of one session statement."""

    def __init__(self, *, bound_to: str | None = None, at: events.Place | None = None, **request: Any) -> None:
        Talk.spawns = getattr(Talk, "spawns", 0) + 1
        self.spawn = Talk.spawns
        self.place, self.bound_to = at or place(), bound_to
        self.request = SessionRequest("session", "Write it", "c1/1/s0", **request)

    def start(self) -> Event:
        return events.SessionStarted(self.place, self.spawn, self.request, self.bound_to)

    def says(self, text: str) -> Event:
        return events.SessionProgressed(self.place, self.spawn, "text", text)

    def notes(self, text: str) -> Event:
        return events.SessionProgressed(self.place, self.spawn, "note", text)

    def calls(self, tool: ToolUse) -> Event:
        return events.SessionProgressed(self.place, self.spawn, "tool", tool.summary, tool)

    def fails(self, why: str, *, final: bool = False, **more: Any) -> Event:
        error = SessionError(why, **more)
        return events.SessionFinished(
            self.place, self.spawn, self.request, self.bound_to, Key("a"), error=error, final=final
        )

    def ends(self, text: str, value: object = "ref", **result: Any) -> Event:
        made = SessionResult(text, **{"provider": "stub", "origin": "model", **result})
        return events.SessionFinished(
            self.place,
            self.spawn,
            self.request,
            self.bound_to,
            Key("a"),
            made,
            value,  # type: ignore[arg-type]
        )


async def shown(*happened: Event, live: bool) -> Recording:
    output = Recording()
    view = CellView(output, live=live, limits=LIMITS)
    for event in happened:
        view(event)
    view.finish(None)
    return output


LIMITS = Limits(1000, 100)
READ = ToolUse("read", "notes.md", "ok", "first line\nsecond")
DENIED = ToolUse("shell", "rm -rf <b>/</b>", "refused", "bash: deny")


def streamed(talk: Talk) -> list[Event]:
    return [talk.start(), talk.says("One "), talk.calls(READ), talk.calls(DENIED), talk.says("\n\ntwo")]


async def test_a_session_that_is_watched_grows_in_one_display_and_ends_as_the_quiet_one() -> None:
    talk = Talk(bound_to="plan", agent="writer", model="opus")
    happened = [*streamed(talk), talk.ends("One\n\ntwo", trace=(READ, DENIED))]
    live, quiet = await shown(*happened, live=True), await shown(*happened, live=False)
    assert live.saved() == [(kind, data) for kind, data in quiet.saved()]
    assert [kind for kind, *_ in quiet.calls] == ["display", "display"]
    assert quiet.texts[0] == "plan · writer · opus · model\nOne\n\ntwo"
    assert quiet.texts[1] == (
        "plan: 2 tool calls, 1 without success\n  ✓ read notes.md\n    first line\n    second\n"
        "  ✗ shell rm -rf <b>/</b> (refused)\n    bash: deny"
    )
    first = live.calls[0]
    assert first[0] == "display" and first[2] is not None
    assert set(first[1].data) == set(quiet.calls[0][1].data) == {"text/markdown", "text/plain"}
    assert "<details" not in first[1].data["text/markdown"]
    assert "<b>" not in quiet.calls[1][1].data["text/html"]


async def test_updates_are_few_and_show_what_is_going_on() -> None:
    talk, output = Talk(), Recording()
    view = CellView(output, live=True, limits=LIMITS)
    view(talk.start())
    assert output.calls == []  # nothing to be seen yet
    for number in range(2000):
        view(talk.says(f"word{number} "))
    assert output.kinds == ["display"]
    await eventually(lambda: "update" in output.kinds)
    assert output.kinds == ["display", "update"]
    assert "word1999" in output.texts[-1] and output.texts[-1].endswith("…")
    view(talk.calls(READ))
    await eventually(lambda: output.kinds.count("update") >= 2)
    assert output.texts[-1].endswith("… read notes.md")
    view(talk.ends("done"))
    view.finish(None)
    assert output.kinds == ["display", "update", "update", "update"]


async def test_a_long_stream_costs_little_and_is_cut_visibly() -> None:
    piece = "0123456789 abcdef\n" * 60_000

    def streamed(pieces: int) -> Streamed:
        text = Streamed()
        for _ in range(pieces):
            text.add(piece)
        assert text.total == pieces * len(piece) and len(text.beginning) == SHOWN
        return text

    assert_linear(lambda size: lambda: streamed(size), 50)

    def shows(text: Streamed) -> None:
        assert len(live_display(Talk().request, None, text, (), "").data["text/plain"]) < LIVE + 200

    one, many = streamed(1), streamed(100)
    assert seconds(lambda: shows(many), 3) < 10 * seconds(lambda: shows(one), 3) + 0.02  # only what is shown is read
    talk = Talk()
    (call,) = (await shown(talk.start(), talk.ends("x" * 3_000_000), live=False)).calls
    assert len(call[1].data["text/markdown"]) < SHOWN + 200
    assert call[1].data["text/plain"].endswith("… (3,000,000 characters in all; the binding holds all of them)")


async def test_attempts_that_failed_are_reported_with_their_cause() -> None:
    talk = Talk(model="opus")
    happened = [
        talk.start(),
        talk.says("half an ans"),
        talk.fails("the server is <b>overloaded</b>"),
        events.Retried(place(), talk.spawn, 1, 2, 0.0),
        talk.start(),
        talk.says("whole"),
        talk.ends("whole"),
    ]
    live, quiet = await shown(*happened, live=True), await shown(*happened, live=False)
    assert live.saved() == quiet.saved()
    assert quiet.texts == ["session · opus · model\n  attempt 1 failed: the server is <b>overloaded</b>\nwhole"]
    markdown = quiet.calls[0][1].data["text/markdown"]
    assert markdown.startswith("<small>session · opus · model<br>attempt 1 failed&#58; the server is &lt;b&gt;")


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_session_without_an_answer_ends_the_same_whether_it_streamed_or_not(attempts: int) -> None:
    talk = Talk(bound_to="x")
    happened: list[Event] = []
    for number in range(attempts):
        happened += [talk.start(), talk.says("half"), talk.fails("no", final=number == attempts - 1)]
    live, quiet = await shown(*happened, live=True), await shown(*happened, live=False)
    assert live.saved() == quiet.saved()
    causes = "".join(f"\n  attempt {number + 1} failed: no" for number in range(attempts))
    assert quiet.texts == [f"x · session · no answer{causes}"]
    assert live.calls[-1][1].facts["partial"] == "half"


async def test_a_session_that_was_never_asked_leaves_all_words_to_the_error() -> None:
    talk = Talk()
    assert (
        await shown(talk.start(), talk.fails("nothing is recorded", final=True, no_answer=True), live=True)
    ).calls == []


async def test_an_interrupted_session_keeps_its_text_with_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    talk, output, loop = Talk(), Recording(), asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    later = loop.call_later

    def call_later(*given: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(later(*given, **more))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", call_later)
    view = CellView(output, live=True, limits=LIMITS)
    for event in (talk.start(), talk.says("Begun\n```\ncode that never")):
        view(event)
    view.fail()
    assert output.kinds == ["display", "update"]
    data = output.calls[-1][1].data
    assert data["text/markdown"].endswith("code that never\n```\n\n**■ interrupted: this answer is not complete**")
    assert data["text/plain"].endswith("code that never\n■ interrupted: this answer is not complete")
    assert timers and all(timer.cancelled() for timer in timers), "no update can come later"


async def test_sessions_side_by_side_show_their_last_line_and_answer_at_the_join() -> None:
    talks = [Talk(at=place(branches=(step(at, name),))) for at, name in enumerate(("a", "b"))]
    started = events.ParallelStarted(place(), 1, ("a", "b"), 2, False)
    middle = [
        talks[0].start(),
        talks[1].start(),
        talks[1].says("b one\nb tw"),
        talks[0].calls(READ),
        talks[1].says("o\n"),
    ]
    output = Recording()
    view = CellView(output, live=True, limits=LIMITS)
    for event in (started, *middle):
        view(event)
    await eventually(lambda: "update" in output.kinds)
    assert [line.strip() for line in output.texts[-1].split("\n")[1:]] == ["▸ a · read notes.md", "▸ b · b two"]
    ends: list[Event] = [talks[1].ends("B"), talks[0].ends("A", trace=(READ,)), events.ParallelJoined(place(), 1)]
    for event in ends:
        view(event)
    view.finish(None)
    quiet = await shown(started, *middle, *ends, live=False)
    assert output.saved() == quiet.saved()
    assert [text.split("\n")[-1] for text in quiet.texts[1:]] == ["A", "    second", "B"]


async def test_displays_that_are_gathered_keep_their_facts() -> None:
    happened: list[Event] = []
    for number in range(MAX_DISPLAYS + 3):
        talk = Talk(at=place(number + 1))
        happened += [talk.start(), talk.says("x"), talk.ends(f"answer {number}", usage=Usage(1, 2, 3))]
    live, quiet = await shown(*happened, live=True), await shown(*happened, live=False)
    assert live.saved() == quiet.saved() and len(quiet.calls) == MAX_DISPLAYS + 1
    parts = quiet.calls[-1][1].facts["parts"]
    assert len(parts) == 3 and parts[0]["usage"] == {"requests": 1, "tokens_in": 2, "tokens_out": 3}


async def test_an_example_written_by_hand_is_called_one() -> None:
    talk = Talk(agent="writer")
    (text,) = (await shown(talk.start(), talk.ends("Hi", origin="authored", replayed=True), live=False)).texts
    assert text == "writer · replayed, example text written by hand\nHi"
    judged = events.Judged(place(), "it is good", True, "authored", "because", {"provider": "x"})
    (call,) = (await shown(judged, live=False)).calls
    assert call[1].data["text/plain"] == "it is good → yes (replayed, example verdict written by hand: because)"
    assert call[1].facts == {"decisions": [{"provider": "x"}]}


async def test_a_live_answer_and_its_replay_differ_only_in_facts() -> None:
    talk = Talk(model="opus")
    live = await shown(
        talk.start(), talk.says("Hi"), talk.ends("Hi", usage=Usage(1, 10, 5, 0.25), details={"model": "m-1"}), live=True
    )
    replay = await shown(talk.start(), talk.ends("Hi", replayed=True, details={"model": "m-1"}), live=False)
    assert live.saved() == replay.saved()
    assert live.calls[-1][1].facts["usage"]["cost"] == 0.25 and live.calls[-1][1].facts["model"] == "m-1"
    assert replay.calls[0][1].facts["replayed"] is True and "usage" not in replay.calls[0][1].facts


async def test_notes_of_a_provider_are_for_who_watches() -> None:
    talk = Talk()
    happened = [talk.start(), talk.notes("waiting: another process uses the memory"), talk.ends("x")]
    live, quiet = await shown(*happened, live=True), await shown(*happened, live=False)
    assert live.texts[0] == "session\n… waiting: another process uses the memory"
    assert live.saved() == quiet.saved() and quiet.texts == ["session · model\nx"]


async def test_a_reply_that_was_cut_says_so() -> None:
    talk = Talk()
    (text,) = (await shown(talk.start(), talk.ends("half", details={"cut": True}), live=False)).texts
    assert text == "session · model\nhalf\n… (the reply ended at the limit of tokens)"


async def test_a_dry_run_shows_what_would_be_sent() -> None:
    talk = Talk()
    (text,) = (
        await shown(talk.start(), talk.notes("Message:\nWrite it"), talk.ends("⟦dry-run⟧", origin="dry-run"), live=True)
    ).texts[-1:]
    assert text == "session · dry run\nMessage:\nWrite it\n⟦dry-run⟧"


HOSTILE = [
    "<script>alert(1)</script>",
    '<img src="http://evil.example/pixel.png">',
    "![pixel](http://evil.example/pixel.png)",
    "[click](javascript:alert(1))",
    "[click]( JaVa\tScript:alert(1) )",
    "[a]: javascript:alert(1)\n\n[a]",
    "<details><summary>open</summary>",
    "```\nnever closed",
    "~~~html\n<script>",
    "<!-- never closed",
    "\x1b[31mred\x1b]0;title\x07 \u202e backwards",
    "x" * 50_000,
    "[" * 2_000 + "](javascript:1)" * 100,
    "</small></div></pre>",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("live", [True, False])
async def test_hostile_text_does_nothing_and_swallows_nothing(text: str, live: bool) -> None:
    talk, output = Talk(), Recording()
    view = CellView(output, live=live, limits=LIMITS)
    for event in (talk.start(), talk.says(text)):
        view(event)
    if live:
        assert _harmless(output.calls[0][1].data["text/markdown"])
        view.fail()
        assert output.calls[-1][1].data["text/markdown"].endswith("\n\n**■ interrupted: this answer is not complete**")
    else:
        view(talk.ends(text, trace=(ToolUse("read", text[:500], "ok", text),)))
        view.finish(None)
    for call in output.calls:
        assert _harmless(call[1].data.get("text/markdown", ""))
        assert not any(ord(c) < 9 or c in "\x1b\u202e" for data in call[1].data.values() for c in data)


def _harmless(markdown: str) -> bool:
    """Nothing in it that a browser would run or load, and every block of code has its end."""
    rendered = MarkdownIt("commonmark", {"html": True}).render(markdown).lower()
    tags = set(re.findall(r"<\s*/?\s*([a-z!][a-z0-9-]*)", rendered))
    allowed = {"small", "br", "pre", "code", "p", "a", "strong", "em", "ul", "ol", "li", "h1", "blockquote", "hr"}
    return tags <= allowed and 'href="javascript' not in rendered and markdown.count("\n```") % 2 == 0


@pytest.mark.parametrize(
    ("where", "more", "shown_as"),
    [
        ({"program": ("local--checked-notice", "inline--writer--2")}, {}, "x · writer · model"),
        ({"program": ("openprose--second-look",)}, {"model": "opus"}, "x · second-look · opus · model"),
        ({"program": ("inline--writer",), "block": "review"}, {}, "x · review · model"),
        ({"block": "review"}, {"agent": "critic"}, "x · critic · model"),
        ({"program": ("inline--writer",)}, {"label": "draft"}, "x · draft · model"),
        ({}, {}, "x · session · model"),
    ],
)
async def test_a_session_is_named_after_the_function_that_asks(
    where: dict[str, Any], more: dict[str, Any], shown_as: str
) -> None:
    talk = Talk(bound_to="x", **more)
    talk.place = talk.place._replace(**where)
    (_, display, _) = (await shown(talk.start(), talk.ends("Hi"), live=False)).calls[0]
    assert display.data["text/plain"] == f"{shown_as}\nHi"
    live = (await shown(talk.start(), talk.fails("no", final=True), live=True)).texts[-1]
    assert live.startswith(shown_as.replace("model", "no answer"))


async def test_a_decision_is_seen_before_what_it_leads_to_and_joins_the_next_one() -> None:
    where, happened = place(), []
    for question, bound in (("it is good", "a"), ("it is long", "b")):
        happened.append(events.Judged(where, question, True, "rules"))
        happened.append(events.SessionStarted(where, len(happened), SessionRequest("session", "Go", "c1/1/s0"), bound))
    output, quiet = Recording(), Recording()
    live_view, quiet_view = CellView(output, live=True, limits=LIMITS), CellView(quiet, live=False, limits=LIMITS)
    live_view(happened[0])
    assert output.calls == []
    live_view(happened[1])
    assert output.texts == ["it is good → yes (rule)"] and output.kinds == ["display"]
    for event in happened[2:]:
        live_view(event)
    for event in happened:
        quiet_view(event)
    live_view.finish(None)
    quiet_view.finish(None)
    assert output.kinds == ["display", "update"]
    assert output.saved() == quiet.saved()
    assert quiet.texts == ["it is good → yes (rule)\nit is long → yes (rule)"]
