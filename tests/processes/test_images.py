"""Images on stdout are kept as bytes; text is never mistaken for an image, and costs nothing extra."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_files import GIF, JPEG, PDF, WEBP, png

from prose_kernel.processes.command_output import Capture
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.runtime import images
from prose_kernel.runtime.images import picture
from prose_kernel.runtime.ports import CommandRequest

IMAGES = {"png": png(), "gif": GIF, "jpeg": JPEG, "webp": WEBP, "pdf": PDF}


def fed(data: bytes, size: int) -> tuple[Capture, str]:
    capture = Capture(pictures=True)
    live = "".join(capture.feed(data[at : at + size]) for at in range(0, len(data), size))
    return capture, live + capture.feed(b"", final=True)


@pytest.mark.parametrize("size", [1, 5, 11, 100_000])
@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_kept_as_it_was_in_pieces_of_any_size(name: str, size: int) -> None:
    capture, live = fed(IMAGES[name], size)
    drawn = picture(IMAGES[name])
    assert drawn is not None and not drawn.broken
    assert (capture.image, live, capture.text) == (IMAGES[name], "", f"[{drawn.text}]\n")
    assert not capture.truncated and capture.replaced_bytes == 0


@pytest.mark.parametrize("size", [1, 4, 7, 100_000])
def test_an_image_may_come_after_text(size: int) -> None:
    capture, live = fed(b"drawing \xc3\xa9\n" + png(), size)
    assert (capture.image, live) == (png(), "drawing é\n")
    assert capture.text == "drawing é\n[PNG image, 3 × 2, 72 bytes]\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"R",
        b"RIFF",
        b"GIF8",
        b"\x89",
        b"\x89PNG",
        b"%PDX",
        b"RIFF....AVI ",
        b"a\xffb",
        b"text \x89 PNG",
        "é".encode(),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_data_that_only_resembles_an_image_is_text(data: bytes, size: int) -> None:
    capture, live = fed(data, size)
    assert capture.image == b""
    assert capture.text == live == data.decode("utf-8", "replace")


def test_an_image_that_is_too_large_is_dropped_with_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LARGEST", 50)
    capture, live = fed(png(), 30)
    assert (capture.image, capture.truncated) == (b"", True)
    assert "too large to be kept" in live and live == capture.text


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (png()[:-5], "its end is missing"),
        (png()[:30], "its end is missing"),
        (png()[:9], "it has no size"),
        (png().replace(b"IDAT", b"IDAU"), "a part of it is damaged"),
        (JPEG[:-2], "its end is missing"),
        (GIF[:-1], "its end is missing"),
        (WEBP[:-1], "its end is missing"),
        (PDF[:-7], "its end is missing"),
    ],
)
def test_a_broken_image_gives_its_reason(data: bytes, why: str) -> None:
    found = picture(data)
    assert found is not None and found.broken == why


async def test_a_command_outputs_an_image_and_takes_one_as_input(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    engine = Engine(state_dir=tmp_path / "state")
    try:
        commands = ShellCommands(engine)
        shown: list[str] = []

        def show(stream: str, text: str, omitted: object = None) -> None:
            shown.append(stream)

        first = await commands.run(CommandRequest("cat a.png; cat a.png >&2", str(tmp_path), 10), show)
        assert (first.image, first.stdout) == (png(), "[PNG image, 3 × 2, 72 bytes]\n")
        assert shown == ["stderr"] and "PNG" in first.stderr  # stderr stays text
        second = await commands.run(CommandRequest("cat > b.png", str(tmp_path), 10, stdin=first.image))
    finally:
        engine.close()
    assert second.exit_code == 0 and (tmp_path / "b.png").read_bytes() == png()
