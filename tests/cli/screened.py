"""A terminal's screen: the characters that a program's output draws."""

from __future__ import annotations

import re
import time

import forked
import pexpect

from prose_kernel.cli.live_region import SGR

_PIECES = re.compile(r"\x1b\[(?P<count>\d*)(?P<code>[AJ])|(?P<cr>\r)|(?P<lf>\n)|(?P<text>[^\x1b\r\n]+)")

_CUT = re.compile(r"\x1b(\[[0-9;]*)?\Z")


class Screened:
    """A program at a terminal. Control sequences that live lines do not use fail the test."""

    def __init__(self, child: forked.Terminal) -> None:
        self.child = child
        self.raw = self._held = ""
        self._rows = [""]
        self._row = self._column = 0

    @property
    def lines(self) -> list[str]:
        """The rows that are not empty."""
        return [row.rstrip() for row in self._rows if row.strip()]

    def until(self, *texts: str, seconds: float = 30.0) -> None:
        """Read until the screen shows all of the texts at the same time."""
        late = time.monotonic() + seconds
        while not all(text in "\n".join(self._rows) for text in texts):
            assert time.monotonic() < late, "\n".join(self._rows)
            try:
                self._feed(self.child.read_nonblocking(4096, timeout=1))
            except pexpect.TIMEOUT:
                continue

    def end(self) -> int | None:
        """Read to the end, and return the exit status."""
        while True:
            try:
                self._feed(self.child.read_nonblocking(4096, timeout=30))
            except pexpect.EOF:
                break
        return self.child.end()

    def _feed(self, data: str) -> None:
        self.raw += data
        data = self._held + data
        cut = _CUT.search(data)
        data, self._held = (data[: cut.start()], cut.group()) if cut else (data, "")
        plain, at = SGR.sub("", data), 0
        for piece in _PIECES.finditer(plain):
            assert piece.start() == at, repr(plain[at : piece.start()])
            at = piece.end()
            if piece["code"] == "A":
                self._row = max(0, self._row - int(piece["count"] or 1))
            elif piece["code"] == "J":
                self._rows = [*self._rows[: self._row], self._rows[self._row][: self._column]]
            elif piece["cr"]:
                self._column = 0
            elif piece["lf"]:
                self._row += 1
                self._rows += [""] * (self._row + 1 - len(self._rows))
            else:
                row, text = self._rows[self._row].ljust(self._column), piece["text"]
                self._rows[self._row] = row[: self._column] + text + row[self._column + len(text) :]
                self._column += len(text)
