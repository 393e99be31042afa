"""Data, images and files in JupyterLab; hostile files are inert."""

from __future__ import annotations

from browser.conftest import Pictures
from browser.lab import Lab, expect
from sample_files import png

SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="120" height="60" onload="document.title='svg'">
<script>document.title = "svg"</script><rect width="120" height="60" rx="8" fill="teal"/>
<foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><img src="/evil.png" onerror="document.title='svg'"/></body>
</foreignObject><image href="/evil.png" width="9" height="9"/></svg>"""
PAGE = """<h1>A page</h1><script>parent.document.title = document.title = "page"; fetch("/evil.json")</script>
<img src="/evil.png" onerror="top.document.title='page'"><style>@import "/evil.css"; h1 { color: teal }</style>
<meta http-equiv="refresh" content="0;url=/evil.html">"""
CSV = "city,people,note\nOslo,717710,<img src=/evil.png onerror=document.title=1>\nLund,91940,\n"


def test_hostile_files_are_shown_and_are_inert(lab: Lab, pictures: Pictures) -> None:
    root, requested = lab.server.root, list[str]()
    for name, text in (("d.svg", SVG), ("p.html", PAGE), ("t.csv", CSV)):
        (root / name).write_text(text)
    (root / "chart.png").write_bytes(png(240, 80, bars=(30, 70, 45, 12, 60)))
    (root / "people.csv").write_text("name;age;city\nAnna;41;Oslo\nBo;7;Lund\n")
    lab.page.on("response", lambda answer: requested.append(answer.url))  # blocked requests are never sent
    notebook = lab.notebook(
        "%show d.svg",
        "%show p.html",
        'exec "cat t.csv"\n  format: "csv"',
        'exec "cat chart.png"\n  display: "people.csv"',
    )
    notebook.run_all()
    notebook.shows(1, "p.html: HTML page")
    drawing = notebook.outputs(0).locator("img")
    expect(drawing).to_be_visible()
    assert drawing.evaluate("image => image.naturalWidth") == 120
    notebook.shows(0, "removed: event handlers, foreignObject, references to elsewhere, script")
    frame = notebook.outputs(1).frame_locator("iframe")
    expect(frame.locator("h1")).to_have_text("A page")
    assert frame.locator("h1").evaluate("title => getComputedStyle(title).color") == "rgb(0, 128, 128)"
    cells = notebook.outputs(2).locator("td").all_inner_texts()
    assert cells == ["Oslo", "717710", "<img src=/evil.png onerror=document.title=1>", "Lund", "91940", ""]
    image = notebook.outputs(3).first.locator("img")
    assert image.evaluate("image => image.naturalWidth") == 240
    notebook.cell(3).scroll_into_view_if_needed()
    pictures.take("data", notebook.cell(3))
    saved = notebook.save()
    assert not [url for url in requested if "evil" in url] and "JupyterLab" in lab.page.title()
    assert [set(output["data"]) for output in saved.cells[3].outputs] == [
        {"image/png", "text/plain"},
        {"text/html", "text/markdown", "text/plain"},
    ]
