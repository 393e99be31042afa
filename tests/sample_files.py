"""Small images and documents, so that no test needs a library for images."""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode


def png(width: int = 3, height: int = 2, *, shade: int = 200, bars: tuple[int, ...] = ()) -> bytes:
    """Return a grey PNG, or one with bars of these heights on white."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (b"\0" + bytes([shade]) * width) * height
    if bars:
        wide = width // len(bars)
        line = [
            b"".join((bytes([90 if tall > height - y else 255]) * (wide - 8)).ljust(wide, b"\xff") for tall in bars)
            for y in range(height)
        ]
        rows = b"".join(b"\0" + one.ljust(width, b"\xff") for one in line)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


GIF = b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffc0000b080004000501011100ffda0008010100003f00d2ffd9")
WEBP = b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")
PDF = b"%PDF-1.4\n1 0 obj<<>>endobj\ntrailer<<>>\n%%EOF\n"
