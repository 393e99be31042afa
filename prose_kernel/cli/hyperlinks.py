"""Links in terminals (OSC 8): where they are understood, how they are written, and where those of error codes lead."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from prose_kernel.errors import UsageError
from prose_kernel.runs import reference_pages

_PROGRAMS = frozenset(("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "Tabby", "rio", "WarpTerminal"))
_TERMS = frozenset(("xterm-kitty", "alacritty", "foot", "foot-extra", "xterm-ghostty", "contour", "wezterm"))
_VTE = 5000
"""GNOME's terminal and its relatives know links since 0.50; earlier ones print rubbish."""


def understood(environment: Mapping[str, str]) -> bool:
    """Whether the terminal that this environment describes shows links; only one that is known to. `FORCE_HYPERLINK`
    decides where it is set: 0 for never."""
    if (forced := environment.get("FORCE_HYPERLINK", "")) != "":
        return forced not in ("0", "false", "no")
    if environment.get("CI") or environment.get("TERM", "dumb") == "dumb" or environment.get("TMUX"):
        return False
    if environment.get("TERM_PROGRAM") in _PROGRAMS or environment["TERM"] in _TERMS:
        return True
    vte = environment.get("VTE_VERSION", "")
    if vte.isdecimal() and len(vte) < 9:
        return int(vte) >= _VTE
    return any(environment.get(name) for name in ("WT_SESSION", "KONSOLE_VERSION", "DOMTERM"))


def linked(text: str, url: str) -> str:
    """Text that is a link. Nothing in the address can end it or act on the terminal."""
    safe = quote(url, safe=":/?#[]@!$&'()*+,;=%-._~")
    return f"\x1b]8;;{safe}\x1b\\{text}\x1b]8;;\x1b\\"


def documentation(code: str, base: str | None) -> str:
    """Where `E004` or `V004` is documented: on the web where `base` (the setting `docs_url`) says so, else in the
    page of this installation; "" without one."""
    found = reference_pages.heading(reference_pages.page_of(code), code)
    if found is None:
        return ""
    try:
        return reference_pages.link(code, base) or f"{found.path.as_uri()}#{found.anchor}"
    except UsageError:
        return ""
