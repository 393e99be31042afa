"""Recognizes PNG, JPEG, GIF, WebP and PDF by their first bytes, and finds the size of the picture.

If a command prints such bytes, they are kept unchanged, and the text of the value is one line that describes them
(docs/reference/openprose.md 5.4).
"""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import Final

from msgspec import Struct

LARGEST: Final = 10_000_000
"""The largest image, in bytes, that is kept and shown."""

PIXELS: Final = 100_000_000
"""The most pixels of an image that is shown: a small file may decompress to more than a browser can hold."""

PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG: Final = b"\xff\xd8\xff"
_GIFS: Final = (b"GIF87a", b"GIF89a")
_PDF: Final = b"%PDF-"
_TITLES: Final = {
    "image/png": "PNG image",
    "image/jpeg": "JPEG image",
    "image/gif": "GIF image",
    "image/webp": "WebP image",
    "application/pdf": "PDF document",
}
_SUFFIXES: Final = {"image/jpeg": "jpg", "application/pdf": "pdf"}
_SEGMENTS: Final = 100_000
"""How many segments or fill bytes of a JPEG are searched for its size."""
_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""The JPEG markers that its size follows."""


class Picture(Struct, frozen=True):
    """The format of a picture's bytes. `width` and `height` are 0 if not known; `broken` describes why the bytes cannot
    be shown, "" for a valid picture."""

    media: str
    bytes: int
    width: int = 0
    height: int = 0
    broken: str = ""

    @property
    def title(self) -> str:
        return _TITLES[self.media]

    @property
    def suffix(self) -> str:
        """The suffix of such a file, without the dot."""
        return _SUFFIXES.get(self.media, self.media.rpartition("/")[2])

    @property
    def text(self) -> str:
        """`PNG image, 640 × 480, 12,345 bytes`."""
        size = f", {self.width:,} × {self.height:,}" if self.width else ""
        counted = f"{self.bytes:,} byte{'s' if self.bytes != 1 else ''}"
        return f"{self.title}{size}, {counted}" + (f", broken: {self.broken}" if self.broken else "")


def file_name(drawn: Picture, data: bytes) -> str:
    """Return a name for a file of these bytes, the same for the same bytes."""
    return f"{sha256(data).hexdigest()[:16]}.{drawn.suffix}"


def media_type(data: bytes) -> str:
    """Return the media type of `data`, by its first 12 bytes; "" if it is none of these."""
    if data.startswith(PNG):
        return "image/png"
    if data.startswith(_JPEG):
        return "image/jpeg"
    if data.startswith(_GIFS):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if data.startswith(_PDF) else ""


def may_become_picture(data: bytes) -> bool:
    """Return whether a stream with these first bytes may become a picture."""
    if data.startswith(b"RIFF"):
        return len(data) < 12 and b"WEBP".startswith(data[8:])
    return any(one.startswith(data) for one in (PNG, _JPEG, *_GIFS, _PDF, b"RIFF"))


def find_start(data: bytes, at: int, final: bool) -> int:
    """Return where a picture begins, or may begin, after text that stops being UTF-8 at `at`; -1 if nowhere.

    Only unmistakable formats count there: PNG, and JPEG exactly at `at`.
    """
    if data.startswith(_JPEG, at):
        return at
    found = data.find(PNG, at)
    if found < 0 and not final:
        found = data.rfind(PNG[:1], max(at, len(data) - len(PNG)))
        found = found if found >= 0 and PNG.startswith(data[found:]) else -1
    return found


def picture(data: bytes, size: int = 0) -> Picture | None:
    """Return the kind of picture; None if it isn't one. `size` is the total number of bytes, if these are the first."""
    media = media_type(data)
    if not media:
        return None
    whole = size or len(data)
    if whole > len(data):
        return Picture(media, whole, *_size(media, data), "too large to be kept; let the command write it to a file")
    width, height = _size(media, data)
    return Picture(media, whole, width, height, _broken(media, data, width, height))


def _broken(media: str, data: bytes, width: int, height: int) -> str:
    if media == "application/pdf":
        return "" if b"%%EOF" in data[-2048:] else "its end is missing"
    if not width or not height:
        return "it has no size"
    if width * height > PIXELS:
        return f"it has {width * height:,} pixels, and up to {PIXELS:,} are shown"
    if media == "image/png":
        return _png_problem(data)
    if media == "image/jpeg":
        return "" if data.rfind(b"\xff\xd9") > 0 else "its end is missing"
    if media == "image/gif":
        return "" if data.rstrip(b"\0").endswith(b";") else "its end is missing"
    return "" if len(data) >= 8 + int.from_bytes(data[4:8], "little") else "its end is missing"


def _png_problem(data: bytes) -> str:
    """Return what is wrong with the chunks of a PNG: one is cut, damaged or missing; "" if nothing is."""
    from zlib import crc32

    at, drawn = len(PNG), False
    while at + 8 <= len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        end = at + 12 + length
        if end > len(data):
            break
        if crc32(memoryview(data)[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            return "a part of it is damaged"
        if kind == b"IEND":
            return "" if drawn else "it has no pixels"
        drawn |= kind == b"IDAT"
        at = end
    return "its end is missing"


def _size(media: str, data: bytes) -> tuple[int, int]:
    try:
        match media:
            case "image/png":
                return struct.unpack_from(">II", data, 16) if data[12:16] == b"IHDR" else (0, 0)
            case "image/gif":
                return struct.unpack_from("<HH", data, 6)
            case "image/jpeg":
                return _jpeg_size(data)
            case "image/webp":
                return _webp_size(data)
    except (struct.error, IndexError):
        pass  # the bytes end before their size
    return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    for _ in range(_SEGMENTS):
        if data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        if marker == 0xFF:
            at += 1  # a fill byte
            continue
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    return 0, 0
