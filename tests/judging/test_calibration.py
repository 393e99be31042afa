"""`%judge calibrate` and `prose judge calibrate`: judges of known accuracy, files, recordings and budgets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from stubs.model_server import StubServer

from prose_kernel.cli.main import main
from prose_kernel.errors import Undecided, UsageError
from prose_kernel.judging.calibration import SHIPPED, CalibrationItem, JudgeAnswer, Share, calibrate, load, of_category
from prose_kernel.runtime.ports import Finding, JudgeRequest, Pick, Verdict

ITEMS = load(SHIPPED)


class Scripted:
    """A judge that is right except on the items named in `wrong`."""

    def __init__(self, wrong: dict[str, bool | None] | None = None, fails: tuple[str, ...] = ()) -> None:
        self.wrong = wrong or {}
        self.fails = fails
        self.asked: list[str] = []
        self.at_once = self.peak = 0

    async def decide(self, request: JudgeRequest) -> Verdict:
        name = request.at.removeprefix("calibrate/")
        self.asked.append(name)
        self.at_once += 1
        self.peak = max(self.peak, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if name in self.fails or "*" in self.fails:
            raise Undecided("the judge could not answer: it is away")
        right = next(item.label for item in ITEMS if item.name == name)
        return Verdict(self.wrong.get(name, right), "model", "because")

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        raise NotImplementedError

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        raise NotImplementedError

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        raise NotImplementedError


# ---------------------------------------------------------------- the shipped set


def test_the_shipped_set_is_balanced_and_varied() -> None:
    labels = Counter(item.label for item in ITEMS)
    assert len(ITEMS) == 200
    assert min(labels[True], labels[False]) >= 80 and labels[None] >= 20
    assert len({item.category for item in ITEMS}) == 10
    assert all(count >= 16 for count in Counter(item.category for item in ITEMS).values())
    assert len({(item.text, str(item.values)) for item in ITEMS}) == 200
    assert sum(item.subject is not None for item in ITEMS) >= 16
    assert max(len(str(item.values)) for item in ITEMS) > 5000


def test_no_rule_contradicts_a_label() -> None:
    from prose_kernel.judging import rules

    for item in ITEMS:
        answer = rules.decide(item.text, item.values).answer
        assert answer in (None, item.label), item


# ---------------------------------------------------------------- counting


async def test_the_accuracy_of_a_known_judge_is_reported() -> None:
    wrong: dict[str, bool | None] = {"prose-02": True, "prose-01": False, "uncertain-01": True, "code-01": None}
    judge = Scripted(wrong, fails=("logs-01",))
    found = await calibrate(ITEMS, judge, "scripted", at_once=5)
    assert judge.peak == 5 and sorted(judge.asked) == sorted(item.name for item in ITEMS)
    assert found.accuracy == Share(195, 200)
    assert found.leads_right == Share(196, 200)  # `uncertain` instead of no leads to the right branch
    assert found.categories["prose"] == Share(18, 20) and found.categories["long"] == Share(20, 20)
    assert found.confusion["yes"] == {"yes": 82, "no": 1, "uncertain": 0, "no answer": 0}
    assert found.confusion["no"] == {"yes": 1, "no": 92, "uncertain": 1, "no answer": 1}
    assert found.confusion["uncertain"] == {"yes": 1, "no": 0, "uncertain": 21, "no answer": 0}
    assert [miss.item.name for miss in found.misses] == ["prose-02", "prose-01", "uncertain-01", "code-01", "logs-01"]


@pytest.mark.parametrize(
    ("share", "low", "high"),
    [(Share(0, 10), 0.0, 0.278), (Share(10, 10), 0.722, 1.0), (Share(90, 100), 0.826, 0.945), (Share(0, 0), 0.0, 1.0)],
)
def test_intervals_are_wilson_intervals(share: Share, low: float, high: float) -> None:
    assert share.interval == pytest.approx((low, high), abs=0.001)


async def test_a_judge_that_is_unreachable_is_not_asked_200_times() -> None:
    judge = Scripted(fails=("*",))
    with pytest.raises(Undecided, match="it is away"):
        await calibrate(ITEMS, judge, "scripted", at_once=4)
    assert len(judge.asked) < 20


async def test_an_interrupt_ends_running_activities() -> None:
    judge, answers = Scripted(), list[JudgeAnswer]()
    begun = asyncio.Event()

    def on_answer(answer: JudgeAnswer) -> None:
        answers.append(answer)
        begun.set()

    task = asyncio.ensure_future(calibrate(ITEMS, judge, "scripted", at_once=2, on_answer=on_answer))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 0 < len(answers) < 200


# ---------------------------------------------------------------- files


def a_file(directory: Path, *lines: object) -> Path:
    path = directory / "items.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


GOOD: dict[str, Any] = {"values": {"x": "It rains."}, "condition": "it rains", "label": "yes"}


def test_a_custom_item_needs_few_fields(tmp_path: Path) -> None:
    criterion = {"value": "Hello", "criterion": "is polite", "label": "uncertain", "why": "a matter of taste"}
    found = load(a_file(tmp_path, GOOD, "", criterion))
    assert found[0] == CalibrationItem("line-1", "all", "it rains", True, {"x": "It rains."})
    assert found[1] == CalibrationItem(
        "line-3", "all", "is polite", None, {"it": "Hello"}, "Hello", "a matter of taste"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "no JSON: expecting property name enclosed in double quotes in column 2"),
        ("[1]", "an item is a JSON object"),
        ('{"values": {"x": NaN}, "condition": "c", "label": "yes"}', "NaN isn't a JSON number"),
        ("[" * 100_000, "nested too deeply"),
        ('{"values": {"x": 1e999}, "condition": "c", "label": "yes"}', "a number is too large"),
        (GOOD | {"label": "maybe"}, "`label` is yes, no or uncertain"),
        (GOOD | {"values": {"x": "\ud800"}}, "a text holds half of a character"),
        (GOOD | {"label": []}, "`label` is yes, no or uncertain"),
        (GOOD | {"label": None}, "`label` is yes, no or uncertain"),
        ({"condition": "c"}, "`label` is yes, no or uncertain"),
        (GOOD | {"expected": "yes"}, "an item has no key 'expected'"),
        (
            GOOD | {"criterion": "is polite"},
            "an item has a `condition` about `values`, or a `criterion` about one `value`",
        ),
        (GOOD | {"condition": " "}, "the condition isn't a text"),
        (GOOD | {"values": ["x"]}, "`values` is an object of names and values"),
        (GOOD | {"id": 7}, "`id` isn't a text"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: object, message: str) -> None:
    with pytest.raises(UsageError) as error:
        load(a_file(tmp_path, GOOD, line), "items.jsonl")
    assert str(error.value) == f"items.jsonl, line 2: {message}"


def test_files_that_are_not_calibration_sets_fail(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no items"):
        load(a_file(tmp_path, "", ""))
    with pytest.raises(UsageError, match="line 2: there is an item 'a' already"):
        load(a_file(tmp_path, GOOD | {"id": "a"}, GOOD | {"id": "a"}))
    with pytest.raises(UsageError, match=r"cannot be read: no such file"):
        load(tmp_path / "nowhere.jsonl")
    (tmp_path / "items.jsonl").write_bytes(b"\xff\xfe{}")
    with pytest.raises(UsageError, match=r"cannot be read: it isn't UTF-8 text"):
        load(tmp_path / "items.jsonl")
    with pytest.raises(UsageError, match="no category 'poems'"):
        of_category(ITEMS, "poems")


# ---------------------------------------------------------------- in the terminal


@pytest.fixture
def project(tmp_path: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    stub.reset()
    (tmp_path / "prose.toml").write_text(
        f'[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nkey = ""\nmodel = "json-0-yes"\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def test_a_model_that_always_says_yes(project: Path, stub: StubServer, capsys: pytest.CaptureFixture[str]) -> None:
    calibrate = ["judge", "calibrate", "--judge", "stub", "--only", "negation", "--format", "json"]
    assert main([*calibrate, "--least", "60"]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    yes = sum(item.label is True for item in ITEMS if item.category == "negation")
    assert (found["judge"], found["items"], found["right"]) == ("stub:json-0-yes", 20, yes)
    assert found["confusion"]["no"] == {"yes": 20 - yes, "no": 0, "uncertain": 0, "no answer": 0}
    assert found["misses"][0]["said"] == "yes" and found["misses"][0]["reason"] == "because"
    assert found["usage"]["requests"] == stub.stats.requests == 20
    assert err.strip() == "Error: it is right less often than in 60 %"
    # recorded only for this judge: a repetition makes no request
    kept = project / "cassettes" / "calibration" / "stub-json-0-yes.jsonl"
    assert sum('"t":"judge"' in line for line in kept.read_text().splitlines()) == 20
    stub.reset()
    assert main([*calibrate, "--cassette-mode", "replay"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again | {"usage": None} == found | {"usage": None}
    assert (again["usage"]["replayed"], stub.stats.requests) == (20, 0)
    assert main(["judge", "calibrate", "--judge", "stub:json-0-no", "--only", "negation", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["right"] == 20 - yes


def test_the_report_in_the_terminal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = a_file(project, *({"condition": f"it rains in {n}", "label": "no" if n < 2 else "yes"} for n in range(4)))
    assert main(["judge", "calibrate", own.name, "--judge", "stub"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "stub:json-0-yes: 2 of 4 right, 50.0 % (95 % interval 15.0 to 85.0 %). An `if` would go the right way in 50.0 %."
    )
    assert "all       2      4   50.0 %  15.0 to 85.0 %" in out
    assert "line-1        no            yes   it rains in 0  because" in out
    assert "4 requests, " in out


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--judge", "nobody"], 2, "there is no provider `nobody`"),
        ([], 2, "no model and no agent judges here"),
        (["--judge", "stub", "nowhere.jsonl"], 2, "nowhere.jsonl cannot be read: no such file"),
        (["--judge", "stub", "--only", "poems"], 2, "there is no category 'poems' in the set"),
        (["--judge", "stub", "--cassette-mode", "replay"], 3, "200 of 200 items are not recorded for stub:json-0-yes"),
        (["--judge", "stub:err-401"], 3, "cannot decide"),
        (["--judge", "stub", "--budget", "0 usd"], 2, "budget"),
        (["--judge", "stub", "--budget", "1k tokens"], 1, "budget"),
    ],
)
def test_calibrations_that_cannot_start(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, message: str
) -> None:
    assert main(["judge", "calibrate", *words]) == status
    assert message in capsys.readouterr().err
