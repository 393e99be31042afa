"""Write links in terminals (OSC 8), and find the documentation of error codes."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from prose_kernel.errors import UsageError
from prose_kernel.runs import reference_pages
from prose_kernel.runs.settings import in_ci

_PROGRAMS = frozenset(("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "Tabby", "rio", "WarpTerminal"))
_TERMS = frozenset(("xterm-kitty", "alacritty", "foot", "foot-extra", "xterm-ghostty", "contour", "wezterm"))
_VTE = 5000
"""The first version of VTE (GNOME Terminal and others), 0.50, that shows links; earlier ones print garbage."""


def understood(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal of this environment is known to show links; `FORCE_HYPERLINK` overrides this."""
    if (forced := environment.get("FORCE_HYPERLINK", "")) != "":
        return forced not in ("0", "false", "no")
    if in_ci(environment) or environment.get("TERM", "dumb") == "dumb" or environment.get("TMUX"):
        return False
    if environment.get("TERM_PROGRAM") in _PROGRAMS or environment["TERM"] in _TERMS:
        return True
    vte = environment.get("VTE_VERSION", "")
    if vte.isdecimal() and len(vte) < 9:
        return int(vte) >= _VTE
    return any(environment.get(name) for name in ("WT_SESSION", "KONSOLE_VERSION", "DOMTERM"))


def linked(text: str, url: str) -> str:
    """Return the text as a link. The address is quoted, so that it cannot end the link or control the terminal."""
    safe = quote(url, safe=":/?#[]@!$&'()*+,;=%-._~")
    return f"\x1b]8;;{safe}\x1b\\{text}\x1b]8;;\x1b\\"


def documentation(code: str, base: str | None) -> str:
    """Return the address of a code's documentation: on the web if `base` (the setting `docs_url`) is set, else in the
    page of this installation; "" if there is none."""
    found = reference_pages.heading(reference_pages.page_of(code), code)
    if found is None:
        return ""
    try:
        return reference_pages.link(code, base) or f"{found.path.as_uri()}#{found.anchor}"
    except UsageError:
        return ""
