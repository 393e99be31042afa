"""Reports in Chromium: hostile output is inert, texts are readable, and a large page opens fast."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from browser.conftest import Pictures
from browser.lab import STEP_MILLISECONDS, Lab, expect

from prose_kernel.cli.main import main
from prose_kernel.runtime.journal_codec import encode
from prose_kernel.runtime.journal_records import Answered, Asked, Ended, Finished, Record, Text
from prose_kernel.runtime.ports import CommandRequest, CommandResult
from prose_kernel.runtime.requests import describe
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import read

CONTRAST = (
    (Path(__file__).parent / "contrast.js")
    .read_text(encoding="utf-8")
    .replace(".jp-NotebookPanel:not(.lm-mod-hidden) ", "")
)
HOSTILE = """\
<script>document.title = "pwned"</script><img src=x onerror="document.title='pwned'"><svg onload="document.title='pwned'">
<meta http-equiv="refresh" content="0;url=https://example.invalid/"></style><style>body { display: none }</style>
</pre></details></main><iframe src="https://example.invalid/"></iframe><base href="https://example.invalid/">
[go](javascript:document.title='pwned') [data](data:text/html,<script>1</script>) ![image](https://example.invalid/x.png)
<a href="javascript:document.title='pwned'">go</a> &#x202e;dlrow <form action="https://example.invalid/"><button>b</button>
"""
PROGRAM = """\
agent writer:
  model: sonnet
  prompt: "You write the notes of a release"
input version: "Which version?"
let log = exec "cat changes"
parallel:
  tests = exec "sleep 0.3; printf '\\\\033[32m214 passed\\\\033[0m\\\\n'"
  lint = exec "sleep 0.1; echo clean"
  docs = exec "sleep 0.2; echo 41 pages"
let notes = session: writer
  prompt: "Write about {version}"
  context: log
  retry: 2
gate publish:
  prompt: "Publish version {version}?"
if **{tests} are enough**:
  let tag = exec "echo v{version}"
else:
  exec "make check"
for place in ["mirror", "registry"]:
  exec "echo copied to $PLACE"
    env: { PLACE: place }
exec "echo the mirror does not answer >&2; exit 4"
"""


@contextmanager
def window(lab: Lab, **options: object) -> Iterator[Any]:
    """A separate page in which errors and requests are failures."""
    problems: list[str] = []
    context = lab.page.context.browser.new_context(**options)
    page = context.new_page()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on("request", lambda request: request.url.startswith("file:") or problems.append(request.url))
    try:
        yield page
        assert problems == []
    finally:
        context.close()


def report(program: str, *options: str) -> Path:
    """Run a program in the current directory, and return its report."""
    Path("changes").write_text(HOSTILE)
    Path("s.yaml").write_text(
        f'sessions:\n  "*": [{{error: overloaded}}, {{reply: {json.dumps(HOSTILE)}, delay: 200ms}}]\njudge:\n  "*": yes\n'
    )
    Path("release.prose").write_text(program)
    main(["run", "release.prose", "--provider", "scripted", "--script", "s.yaml", *options])
    assert main(["report", "--output", "report.html"]) == 0
    return Path("report.html").resolve()


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return report(PROGRAM, "--input", "version=1.4", "--yes", "publish")


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The report of a run of 4,000 statements, half of them commands with much output. The fixture writes its journal."""
    monkeypatch.chdir(tmp_path)
    lines = [f'let a{n} = exec "command {n}"' if n % 2 else f'let a{n} = "value {n}"' for n in range(4_000)]
    Path("release.prose").write_text('exec "true"\n')
    assert main(["run", "release.prose"]) == 0
    (journal,) = Path(".prose/runs").glob("*/journal.jsonl")
    found = read(journal)
    journal.unlink()
    text = Text(1, "openprose", "release.prose", "\n".join(lines), directory=str(tmp_path))
    printed = CommandResult("exited", 0, "<&>" * 1000, "é" * 500, stdout_bytes=3000, stderr_bytes=1000)
    records: list[Record] = [found.head, text]
    for n in range(1, 4_000, 2):
        request = CommandRequest(f"command {n}", str(tmp_path), 120.0, at=f"c1/{n + 1}/x0")
        asked = describe(request)
        records.append(Asked(asked.key, asked.kind, asked.digest([found.head.run.encode()]), asked.shown, t=n))
        records.append(Answered(asked.key, encode(printed), t=n + 1))
    file = JournalFile(journal)
    file.copy([*records, Ended(1, t=4_000), Finished()])
    file.close()
    assert main(["report", "--output", "report.html"]) == 0
    return tmp_path / "report.html"


def test_hostile_output_is_inert_and_readable_in_light_dark_and_print(
    lab: Lab, hostile: Path, pictures: Pictures
) -> None:
    with window(lab, viewport={"width": 1280, "height": 900}, color_scheme="light") as page:
        page.goto(hostile.as_uri())
        assert re.fullmatch(r"release\.prose, [\d-]{10} [\d:]{8} UTC: failed", page.title())
        assert (
            page.evaluate("document.querySelectorAll('script, img, iframe, form, base, [onload], [onerror]').length")
            == 0
        )
        assert page.evaluate("document.styleSheets.length") == 1
        links = page.evaluate("[...document.links].map(link => link.protocol)")
        assert set(links) <= {"file:", "https:", "http:", "mailto:"}
        answer = page.locator(".session .md")
        expect(answer).to_contain_text("[image: image]")
        expect(answer).to_contain_text("\\u202edlrow")
        pictures.take("report", page)

        shown = page.locator(".e:visible")
        everything = shown.count()
        page.locator("label", has_text="Failed").click()
        expect(page.locator(".e.command.failed")).to_be_visible()
        assert 0 < shown.count() < everything
        page.locator("label", has_text="All").first.click()
        assert shown.count() == everything

        stream = page.locator(".command pre", has_text="214 passed")
        expect(stream).to_be_hidden()
        page.emulate_media(media="print")
        expect(stream).to_be_visible()
        page.emulate_media(media="screen")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        page.evaluate("document.querySelectorAll('svg').forEach(one => one.remove())")  # texts there have a fill
        for scheme in ("Light", "Dark"):
            page.locator("label", has_text=scheme).click()
            pieces = page.evaluate(CONTRAST, "body")
            assert len(pieces) > 200
            assert [piece for piece in pieces if piece["contrast"] < 4.5] == []


def processor_seconds_of_opening(page: Any, path: Path) -> float:
    """Return the processor time of all processes of the browser until a page is loaded and visible."""
    before = _consumed()
    page.goto(path.as_uri(), timeout=4 * STEP_MILLISECONDS)
    expect(page.locator("h1")).to_be_visible()
    return _consumed() - before


def _consumed() -> float:
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "chrom" in process.name():
                total += sum(process.cpu_times()[:2])
    return total


PLAIN = """() => {
  const texts = [...document.body.querySelectorAll('*')].map(element =>
    [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.data).join(''));
  const escaped = text => text.replace(/[&<]/g, sign => `&#${sign.charCodeAt(0)};`);
  const some = texts.filter((_, number) => number % 3 === 0);
  return `<meta charset="utf-8"><h1>Plain</h1>${some.map(text => `<p>${escaped(text)}</p>`).join('')}`;
}"""
"""A plain page of paragraphs with the texts of every third element of a page."""


def test_a_report_of_4_000_statements_opens_as_fast_as_plain_pages(lab: Lab, large: Path) -> None:
    """It takes less time than three plain pages with a third of its texts. It usually takes half of that, because most of it is
    laid out only when it is opened."""
    assert large.stat().st_size < 5_000_000
    plain = large.with_name("plain.html")
    cost = floor = float("inf")
    with window(lab) as page:
        for _ in range(3):
            cost = min(cost, processor_seconds_of_opening(page, large))
            if not plain.exists():
                assert page.locator(".note").count() == 0
                assert page.locator(".e").count() == 4_000
                assert page.locator(".src li").count() == 4_000
                plain.write_text(page.evaluate(PLAIN), encoding="utf-8")
            floor = min(floor, processor_seconds_of_opening(page, plain))
            if cost < 3 * floor:
                break
        assert 0 < cost < 3 * floor
