"""Files as displays: the display of each kind, and that hostile files are inert."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import struct
from pathlib import Path

import pytest
from sample_files import GIF, JPEG, PDF, WEBP, png

from prose_kernel.errors import ExecError
from prose_kernel.runtime.ports import CommandResult
from prose_kernel.runtime.values import ExecText, Value
from prose_kernel.storage import shown_files
from prose_kernel.views.display import Display
from prose_kernel.views.file_displays import file_display
from prose_kernel.views.svg import NotDrawn, drawing
from prose_kernel.views.tables_of_values import table_of


@pytest.fixture
def shown(tmp_path: Path) -> object:
    def show(name: str, data: bytes | str, *, scripts: bool = False) -> Display:
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return file_display(shown_files.read(name, str(tmp_path)), scripts=scripts)

    return show


# ---------------------------------------------------------------- images


@pytest.mark.parametrize(
    ("name", "data", "media", "text"),
    [
        ("a.png", png(), "image/png", "a.png: PNG image, 3 × 2, 72 bytes"),
        ("a.jpg", JPEG, "image/jpeg", "a.jpg: JPEG image, 5 × 4, 46 bytes"),
        ("a.pdf", PDF, "application/pdf", "a.pdf: PDF document, 45 bytes"),
        ("called.txt", png(), "image/png", "called.txt: PNG image, 3 × 2, 72 bytes"),
    ],
)
def test_an_image_is_recognised_by_its_content(shown, name: str, data: bytes, media: str, text: str) -> None:  # type: ignore[no-untyped-def]
    display = shown(name, data)
    assert display.data == {media: base64.b64encode(data).decode(), "text/plain": text}
    assert not display.metadata and shown(name, data) == display  # always the same, because nbval compares it


@pytest.mark.parametrize(("name", "data", "media"), [("a.gif", GIF, "image/gif"), ("a.webp", WEBP, "image/webp")])
def test_image_types_that_some_front_ends_lack_are_shown_in_html(shown, name: str, data: bytes, media: str) -> None:  # type: ignore[no-untyped-def]
    markup = shown(name, data).data["text/html"]
    assert f'<img src="data:{media};base64,{base64.b64encode(data).decode()}"' in markup


def test_an_image_with_too_many_pixels_is_not_shown(shown) -> None:  # type: ignore[no-untyped-def]
    data = bytearray(png())
    data[16:24] = struct.pack(">II", 60_000, 60_000)
    display = shown("a.png", bytes(data))
    assert set(display.data) == {"text/html", "text/plain"} and "<img" not in display.data["text/html"]
    assert display.data["text/plain"].endswith("it has 3,600,000,000 pixels, and up to 100,000,000 are shown")
    filled = shown("a.jpg", b"\xff\xd8" + b"\xff" * 5_000_000)
    assert filled.data["text/plain"].endswith("broken: it has no size")


def test_a_broken_image_is_shown_as_a_line_with_the_reason(shown) -> None:  # type: ignore[no-untyped-def]
    display = shown("a.png", png()[:-20])
    assert display.data["text/plain"] == "a.png: PNG image, 3 × 2, 52 bytes, broken: its end is missing"
    assert set(display.data) == {"text/html", "text/plain"} and "<img" not in display.data["text/html"]


# ---------------------------------------------------------------- drawings

_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="30" height="20">{}</svg>'
)
HOSTILE = {
    "script": "<script>alert(1)</script>",
    "script of another case and place": '<g><a href="x"><script type="text/ecmascript">alert(1)</script></a></g>',
    "event handler": '<rect onload="alert(1)" ONCLICK="x"/>',
    "foreignObject": '<foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><iframe src="//evil"/></body></foreignObject>',
    "image from elsewhere": '<image href="https://evil/x.png"/>',
    "image from elsewhere, old": '<image xlink:href="//evil/x.png"/>',
    "svg inside of an image": '<image href="data:image/svg+xml;base64,PHN2Zz4="/>',
    "use from elsewhere": '<use href="https://evil/a.svg#x"/>',
    "style from elsewhere": "<style>@import url(https://evil/a.css);</style>",
    "style with an escape": "<style>*{fill:u\\72l(https://evil)}</style>",
    "fill from elsewhere": '<rect fill="url(https://evil/#a)"/>',
    "style attribute": "<rect style=\"background:url( '//evil')\"/>",
    "link": '<a href="javascript:alert(1)"><rect/></a>',
    "animated link": '<a><animate attributeName="href" values="javascript:alert(1)"/></a>',
    "set": '<set attributeName="onclick" to="alert(1)"/>',
    "processing": '<?xml-stylesheet href="https://evil/a.css"?><rect/>',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_parts_of_a_drawing_are_removed(name: str) -> None:
    text = drawing(_SVG.format(HOSTILE[name]).encode()).text.lower()
    assert not re.search(r"script|alert|evil|foreign|iframe|onload|onclick|animate|<set|stylesheet|u\\72", text)
    assert text.startswith("<svg ")


def test_a_harmless_drawing_is_unchanged() -> None:
    inner = (
        '<defs><linearGradient id="g"><stop offset="0"/></linearGradient><path id="p" d="M0 0L9 9"/></defs>'
        '<rect fill="url(#g)" style="fill: url(#g); stroke: red"/><use xlink:href="#p" x="3"/>'
        '<text xml:space="preserve">a &lt; b</text><style>rect { fill: blue }</style>'
        '<image href="data:image/png;base64,AAAA"/>'
    )
    found = drawing(('<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" '
                     '"http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">' + _SVG.format(inner)).encode())  # fmt: skip
    assert (found.width, found.height, found.removed) == (30, 20, ())
    for part in (
        "linearGradient",
        'fill="url(#g)"',
        'href="#p"',
        'xml:space="preserve"',
        "rect { fill: blue }",
        "AAAA",
    ):
        assert part in found.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '<!DOCTYPE svg [<!ENTITY a "x"><!ENTITY b "&a;&a;">]><svg>&b;</svg>',
            "it defines entities, which are not read",
        ),
        (
            '<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/passwd">]><svg>&a;</svg>',
            "it defines entities, which are not read",
        ),
        ("<svg><g></svg>", "it is not well-formed at line 1, column 11"),
        ("<html/>", "its first element is not `svg`"),
        ("", "it is not well-formed at line 1, column 1"),
        ("<svg>" + "<g>" * 5000 + "</g>" * 5000 + "</svg>", "it is nested too deeply"),
        (
            '<svg><g id="a0"><rect/></g>'
            + "".join(f'<g id="a{n}">' + f'<use href="#a{n - 1}"/>' * 10 + "</g>" for n in range(1, 9))
            + "</svg>",
            "it would draw more than 1,000,000 elements",
        ),
        (
            '<svg><pattern id="a0"><rect/></pattern>'
            + "".join(
                f'<pattern id="a{n}">' + f'<rect fill="url(#a{n - 1})"/>' * 20 + "</pattern>" for n in range(1, 9)
            )
            + "</svg>",
            "it would draw more than 1,000,000 elements",
        ),
    ],
)
def test_a_text_that_is_not_a_drawing_has_a_reason(text: str, reason: str) -> None:
    with pytest.raises(NotDrawn, match=re.escape(reason)):
        drawing(text.encode())


def test_parts_with_circular_or_frequent_references_are_drawn() -> None:
    circle = '<g id="a"><use href="#b"/></g><g id="b"><use href="#a"/></g>'
    letters = '<path id="p" d="M0 0"/>' + '<use href="#p"/>' * 20_000
    assert drawing(_SVG.format(circle).encode()).text and drawing(_SVG.format(letters).encode()).text
    assert drawing(b'<svg viewBox="0 0 1e300 -5"/>').width == 0


def test_a_drawing_is_shown_as_an_image_without_scripts(shown) -> None:  # type: ignore[no-untyped-def]
    display = shown("d.svg", _SVG.format("<script>alert(1)</script><rect/>"))
    assert display.data["text/plain"] == "d.svg: SVG image, 30 × 20, 144 bytes; removed: script"
    assert display.data["text/html"].startswith('<img src="data:image/svg+xml;base64,')
    broken = shown("d.svg", "<svg>").data["text/plain"]
    assert broken == "d.svg: SVG image, 5 bytes, broken: it is not well-formed at line 1, column 6"


# ---------------------------------------------------------------- pages, texts, notebooks


def test_an_html_page_is_shown_in_a_frame_without_scripts_origin_or_network(shown) -> None:  # type: ignore[no-untyped-def]
    page = '<h1 title="a">"Hi" & bye</h1><script>parent.alert(1)</script></iframe><img src=x onerror=alert(2)>'
    markup = shown("p.html", page).data["text/html"]
    assert '<iframe sandbox="" ' in markup and markup.count("<iframe") == markup.count("</iframe>") == 1
    assert "default-src &#x27;none&#x27;" in markup and "<script" not in markup and "<img" not in markup
    with_scripts = shown("p.html", page, scripts=True).data["text/html"]
    assert '<iframe sandbox="allow-scripts" ' in with_scripts and "same-origin" not in with_scripts


def test_markdown_keeps_its_formatting_and_no_tags(shown) -> None:  # type: ignore[no-untyped-def]
    display = shown("a.md", "# Title\n<script>alert(1)</script> ![x](http://evil/a.png)\n")
    assert display.data["text/markdown"] == "# Title\n&lt;script>alert(1)&lt;/script> &#33;[x](http://evil/a.png)"
    assert display.data["text/plain"].startswith("# Title\n<script>")


def test_a_notebook_is_shown_in_short(shown) -> None:  # type: ignore[no-untyped-def]
    code = {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": "print(1)"}
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": "1\n" * 50},
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": "AAAA", "text/plain": "<Figure>"}},
        {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []},
    ]
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# Hello <b>"},
        *({**code, "outputs": outputs if number == 0 else []} for number in range(50)),
    ]
    book = {"nbformat": 4, "nbformat_minor": 4, "metadata": {"language_info": {"name": "python"}}, "cells": cells}
    display = shown("n.ipynb", json.dumps(book))
    text, styled = display.data["text/plain"], display.data["text/markdown"]
    assert text.startswith("n.ipynb: notebook, 51 cells\n\n# Hello <b>\n\nprint(1)\n\n  1\n")
    assert "50 lines in all" in text and "[image/png, text/plain]" in text and "ValueError: no" in text
    assert text.endswith("… (11 more cells)") and "```python\nprint(1)\n```" in styled and "<b>" not in styled
    assert "broken" in shown("n.ipynb", "{}").data["text/plain"]
    assert "broken" in shown("n.ipynb", "no JSON").data["text/plain"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "its parts are not those of a notebook"),
        ('{"nbformat": 3, "worksheets": 5}', "its parts are not those of a notebook"),
        ('{"nbformat": 1, "cells": [{"cell_type": "x"}]}', "its parts are not those of a notebook"),
        ('{"nbformat": 99, "cells": []}', "Unsupported nbformat version 99"),
    ],
)
def test_a_broken_notebook_is_shown_as_a_line_with_the_reason(shown, text: str, reason: str) -> None:  # type: ignore[no-untyped-def]
    assert shown("n.ipynb", text).data["text/plain"] == f"n.ipynb: notebook, {len(text)} bytes, broken: {reason}"


def test_the_beginning_of_a_text_is_shown(shown) -> None:  # type: ignore[no-untyped-def]
    assert shown("a.log", "one\x1b[2J\ntwo\n").data == {"text/plain": "a.log:\none␛[2J\ntwo"}
    long = shown("a.log", "line\n" * 100_000).data["text/plain"]
    assert long.endswith("… (500,000 bytes in all)") and long.count("\n") == 201
    old = shown("a.txt", "caf\xe9".encode("latin-1")).data["text/plain"]
    assert old == "a.txt:\ncafé\n… (it is not UTF-8 and was read as Windows-1252)"


def test_json_is_shown_as_a_table_or_indented(shown) -> None:  # type: ignore[no-untyped-def]
    assert shown("a.json", '[{"a": 1}, {"a": 22}]').data["text/plain"] == "a.json\n a\n--\n 1\n22"
    assert shown("a.json", '{"a": [1]}').data["text/plain"] == 'a.json:\n{\n  "a": [\n    1\n  ]\n}'
    broken = shown("a.json", '{"a": 1,\n "b" 2}').data["text/plain"]
    assert broken == "a.json: JSON, 16 bytes, broken: expecting ':' delimiter at line 2, column 6"


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize(
    "data",
    [
        "name,n\nAnna,1\nBo,22\n",
        "name;n\r\nAnna;1\r\nBo;22",
        "name\tn\nAnna\t1\n\nBo\t22\n",
        "sep=|\nname|n\nAnna|1\nBo|22\n",
        '\ufeff"name","n"\n"Anna",1\n"Bo",22\n',
        "name,n\nAnna,1\nBo,22\n".encode("utf-16"),
    ],
)
def test_csv_dialects_are_shown_as_the_same_table(shown, data: str | bytes) -> None:  # type: ignore[no-untyped-def]
    display = shown("t.csv", data)
    assert display.data["text/plain"] == "t.csv\nname   n\n----  --\nAnna   1\nBo    22"
    assert display.data["text/markdown"] == "t.csv\n\n| name | n |\n| --- | ---: |\n| Anna | 1 |\n| Bo | 22 |"
    assert '<td style="text-align: right">22</td>' in display.data["text/html"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("a,b\n1,2\n3\n", "1 value for 2 columns at line 3, column 1 of the data"),
        ("a,b\n1,2\n3,4,5\n", "3 values for 2 columns at line 3, column 5 of the data"),
        ('a,b\n1,2\n3,"x\n', "the quote that begins here is not closed at line 3, column 3 of the data"),
        ('a,b\n1,2\n"x"y,4\n', "text after a closing quote at line 3, column 4 of the data"),
        (
            "a,b\n1,2\n" + ",".join(["x" * 100_000] * 30) + "\n",
            "30 values for 2 columns at line 3, column 200,003 of the data",
        ),
        ("a,b\n1,2\n3," + "," * 10_000_000, "a row of more than 10,000,000 characters at line 3, column 1 of the data"),
        ('a,b\n1,2\n"x\ny"z,4\n', "text after a closing quote at line 4, column 3 of the data"),
    ],
)
def test_a_damaged_row_is_reported_and_the_rows_above_it_are_shown(shown, data: str, problem: str) -> None:  # type: ignore[no-untyped-def]
    text = shown("t.csv", data).data["text/plain"]
    assert text == f"t.csv\na  b\n-  -\n1  2\n… (damaged: {problem})"


def test_json_lines_are_shown_as_a_table(shown) -> None:  # type: ignore[no-untyped-def]
    rows = '{"id": 1, "tags": ["a", "b"], "at": {"x": 1}}\n\n{"id": 20, "more": null}\n'
    assert shown("t.jsonl", rows).data["text/plain"].split("\n")[1:] == [
        "id  tags        at        more",
        "--  ----------  --------  ----",
        ' 1  ["a", "b"]  {"x": 1}',
        "20",
    ]
    long = shown("t.jsonl", json.dumps({"a": "x" * 2_000_000, "b": 2}) + "\n").data["text/plain"]
    assert long.endswith("x…  2")
    assert shown("t.jsonl", "1\n2\n").data["text/plain"] == "t.jsonl:\n1\n2"


def test_a_table_may_have_very_many_columns(shown) -> None:  # type: ignore[no-untyped-def]
    line = ",".join(f"c{number}" for number in range(100_000))
    assert shown("t.csv", f"{line}\n{line}\n").data["text/plain"].endswith("… (99,988 more columns)")


def test_only_the_beginning_of_a_long_csv_is_kept_in_memory(shown, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import tracemalloc

    line = "1,some text that fills a row of fifty characters,2026\n"
    path = tmp_path / "big.csv"
    with path.open("w") as file:
        file.write("id,text,year\n")
        for _ in range(20):
            file.write(line * 1000)
    shown_files.read("big.csv", str(tmp_path))
    tracemalloc.start()
    file_ = shown_files.read("big.csv", str(tmp_path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (file_.total, len(file_.rows)) == (20_000, 30) and path.stat().st_size > 1_000_000
    assert peak < 500_000
    assert file_display(file_).data["text/plain"].endswith("… (19,970 more rows)")


def test_rows_of_a_csv_beyond_the_limit_are_not_counted(shown, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(shown_files, "COUNTED", 1000)
    text = shown("t.csv", "a\n" + "1\n" * 5000).data["text/plain"]
    assert "rows after the first 1,000 are not counted" in text or "are not counted" in text


ROWS: list[Value] = [{"name": "a long name of a person", "age": 7, "city": "京都" * 10, "x": None} for _ in range(40)]


@pytest.mark.parametrize("width", [80, 40, 20, 5])
def test_a_table_fits_the_width_of_a_terminal(width: int) -> None:
    from prose_kernel.language.text import screen_width

    table = table_of(ROWS)
    assert table is not None
    *lines, note = table.fitted(width).split("\n")
    assert all(screen_width(line) <= width for line in lines) and len(lines) == 32
    assert "10 more rows" in note and (width > 30 or "more column" in note)
    assert table.fitted(0) == table.text


def test_complete_rows_of_a_truncated_output_are_shown() -> None:
    result = CommandResult("exited", 0, stdout_truncated=True, stdout_bytes=1000)
    table = table_of(ExecText("a,b\n1,2\n3,", result, format="csv"))
    assert table is not None and table.text == "a  b\n-  -\n1  2\n… (more rows, which the value does not keep)"
    assert table_of(ExecText("a,b\n1,2\n3\n", CommandResult("exited", 0), format="csv")) is None


def test_a_column_with_missing_numbers_is_numeric() -> None:
    table = table_of([{"n": 1, "t": "1"}, {"n": None, "t": "x"}])
    assert table is not None and table.numeric == (True, False)
    empty = table_of([{"n": None}])
    assert empty is not None and empty.numeric == (False,)


# ---------------------------------------------------------------- files that cannot be shown


def _refusal(path: str, directory: Path) -> str:
    with pytest.raises(ExecError) as caught:
        shown_files.read(path, str(directory))
    assert caught.value.code == "E223"
    return caught.value.message


def test_files_that_cannot_be_shown_are_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "there").symlink_to("d/../a.png")
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "b.png").write_bytes(b"no image")
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "data").write_bytes(b"\0\1\2\3")
    (tmp_path / "archive").write_bytes(b"\x1f\x8b\x08\xe9\xff packed")
    listener = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(tmp_path)
    listener.bind("socket")
    reasons = {
        name: _refusal(name, tmp_path).removeprefix(f"{name} cannot be shown: ")
        for name in (
            "gone.png",
            "d",
            "pipe.png",
            "/dev/zero",
            "nowhere",
            "circle",
            "a.png/x",
            "b.png",
            "empty.png",
            "data",
            "archive",
            "socket",
        )
    }
    listener.close()
    assert reasons == {
        "gone.png": "there is no such file",
        "d": "it is a directory",
        "pipe.png": "it is a pipe, which has no end",
        "/dev/zero": "it is a device",
        "nowhere": "it is a link to a file that does not exist",
        "circle": "its links lead in a circle",
        "a.png/x": "a part of its path isn't a directory",
        "b.png": "it isn't a PNG: it begins with other bytes",
        "empty.png": "it isn't a PNG: it is empty",
        "data": "it isn't text, nor of another kind that can be shown",
        "archive": "it isn't text, nor of another kind that can be shown",
        "socket": "it is a socket",
    }
    assert _refusal("", tmp_path) == "the file cannot be shown: its name is empty"
    assert "a file name" in _refusal("a\0b", tmp_path)
    assert shown_files.read("there", str(tmp_path)).media == "image/png"


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_files, "WHOLE", 50)
    (tmp_path / "a.png").write_bytes(png())
    assert _refusal("a.png", tmp_path) == (
        "a.png cannot be shown: it has 72 bytes, and up to 50 are shown of a file of its kind"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch(0)
    assert _refusal("a.txt", tmp_path) == "a.txt cannot be shown: it may not be read"
