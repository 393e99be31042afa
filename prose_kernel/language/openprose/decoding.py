"""Bytes to text: openprose.md 1.1."""

from __future__ import annotations

from prose_kernel.errors import CompileError
from prose_kernel.language.diagnostics import diagnostic
from prose_kernel.language.source import Source, Span


def decode(data: bytes, name: str) -> Source:
    """The source in a file's bytes: a BOM is dropped, CRLF becomes LF. Raises CompileError with E109 for bad UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        skip = 3 if data.startswith(b"\xef\xbb\xbf") else 0  # the codec counts from behind a BOM
        at = error.start + (skip if error.object is not data else 0)
        good = data[:at].decode("utf-8-sig", "replace")
        rest = data[at : at + 200].decode("utf-8", "replace")
        source = Source((good + rest).replace("\r\n", "\n"), name)
        offset = len(good.replace("\r\n", "\n"))
        byte = data[at] if at < len(data) else 0
        found = diagnostic(
            source, "E109", Span(offset, offset + 1), f"not UTF-8: byte 0x{byte:02x}", "save the file as UTF-8"
        )
        raise CompileError([found]) from None
    return Source(text.replace("\r\n", "\n"), name)
