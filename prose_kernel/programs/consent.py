"""Asks a person to agree before a fetched program first runs.

An agreement is about a text, by its digest. It is given at a terminal, in a notebook's input box, or beforehand by
`--trust` and `%trust`; never by a program. Processes that a run has started are recognized as for gates
(`access.peers`), and no input, session or file of decisions is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from prose_kernel.errors import NON_INTERACTIVE, ImportProgramError, NoPerson, UsageError
from prose_kernel.language.text import escaped, escaped_lines
from prose_kernel.programs import urls
from prose_kernel.runtime.asker import Button, Form, SerialAsker

ALL = "all"
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_QUESTION = "Run this, now and later? yes, no, or show (print the text): "
_FORM = Form("program", "Run this, now and later?", (Button("Yes", "yes"), Button("No", "no"), Button("Show", "show")))


@dataclass(frozen=True, slots=True)
class Fetched:
    """The text of a program: the requested URL, the URL where it was found, and its digest."""

    url: str
    location: str
    data: bytes = field(repr=False)
    digest: str


class Candidate(Struct, frozen=True):
    """A program that is about to run. `holds` lists its abilities; `via` are the URLs of the programs that led to it,
    outermost first; `before` is the digest that is pinned so far, if this text replaces another one."""

    fetched: Fetched
    holds: tuple[str, ...]
    via: tuple[str, ...] = ()
    before: str | None = None


class Trust:
    """Consent given beforehand: `all`, digests, and URLs or registry names.

    A digest covers only that text. A URL covers its current text, with all imports.
    """

    def __init__(self) -> None:
        self._all = False
        self._digests: set[str] = set()
        self._urls: set[str] = set()

    def add(self, given: Iterable[str], registry: str) -> None:
        """Add digests, addresses or `all`. Raises `UsageError` for anything else."""
        for one in given:
            if one == ALL:
                self._all = True
            elif digest := _DIGEST.fullmatch(one):
                self._digests.add(digest[1])
            elif "/" in one and one[0] not in "./~":
                try:
                    self._urls.add(urls.address(one, registry))
                except ImportProgramError as problem:
                    raise UsageError(problem.message, hint=problem.hint) from None
            else:
                hint = "trust takes a URL, `handle/name`, the SHA-256 of a text (64 digits), or `all`"
                raise UsageError(f"{one} isn't a program from elsewhere", hint=hint)

    def covers(self, candidate: Candidate) -> bool:
        known = self._urls.intersection((candidate.fetched.url, *candidate.via))
        return self._all or bool(known) or candidate.fetched.digest in self._digests


async def agree(candidates: Sequence[Candidate], trust: Trust, asker: SerialAsker | None) -> None:
    """Return if all candidates may run. Raises `ImportProgramError` (E215) if a person refuses or none is available."""
    from prose_kernel.access import peers

    first = candidates[0].fetched.url
    if peers.inside_a_run():  # apparent consent could come from the program itself
        why = "it has not run here before, and only a person may agree to that, not a command of a run"
        raise urls.unfetchable(first, why, f"at a terminal: prose install {first}")
    undecided = [one for one in candidates if not trust.covers(one)]
    if not undecided:
        return
    if asker is None or not asker.available:
        raise _no_person(undecided, asker)
    try:
        async with asker.turn():
            asker.show(question_text(undecided))
            agreed = await _answer(undecided, asker)
    except (EOFError, NoPerson):
        raise _no_person(undecided, asker) from None
    if not agreed:
        raise urls.unfetchable(undecided[0].fetched.url, "you did not agree to run it")


async def _answer(candidates: Sequence[Candidate], asker: SerialAsker) -> bool:
    while True:
        answer = (await asker.ask_form(_QUESTION, _FORM)).strip().lower()
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")
        if answer in ("s", "show"):
            for one in candidates:
                asker.show(f"---- {one.fetched.url}\n{legible(one.fetched.data)}")
        else:
            asker.show("Please answer yes, no or show.")


def legible(data: bytes) -> str:
    """Return the text of a program for review before it runs: each line as it is, nothing in it hidden."""
    return escaped_lines(data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n"))


def question_text(candidates: Sequence[Candidate]) -> str:
    """Return the text shown to the person: all facts that are known before the programs run."""
    many = len(candidates) > 1
    lines = [f"{len(candidates)} programs" if many else "A program", "from elsewhere, not agreed to before:"]
    shown = [" ".join(lines)]
    for one in candidates:
        shown += ["", f"  {escaped(one.fetched.url)}"]
        shown += [f"    {key:<8}{escaped(value)}" for key, value in _facts(one)]
    if any(hold.startswith("exec") for one in candidates for hold in one.holds):
        shown += ["", "exec runs shell commands on this machine, with your rights."]
    return "\n".join(shown)


def _facts(one: Candidate) -> list[tuple[str, str]]:
    found = one.fetched
    facts = [("sha256", found.digest)]
    if one.before:
        facts.append(("was", one.before))
    facts.append(("size", f"{len(found.data):,} bytes"))
    if found.location != found.url:
        facts.append(("from", found.location))
    if one.via:
        facts.append(("used by", one.via[-1]))
    return [*facts, ("holds", ", ".join(one.holds) or "nothing that acts")]


def _no_person(candidates: Sequence[Candidate], asker: SerialAsker | None) -> ImportProgramError:
    """Return the error if no person can be asked. Its hint names a single text by its digest: the server may send a
    different text to a client that has read this one."""
    magic = asker.magic if asker is not None else ""
    found = candidates[0].fetched
    url, agreed = found.url, found.digest if len(candidates) == 1 else found.url
    trust = f"{magic}trust {agreed}" if magic else f"--trust {agreed}"
    error = urls.unfetchable(
        url,
        f"it has not run here before, and {NON_INTERACTIVE}",
        f"read it (prose programs show {url}), then agree: {trust}",
    )
    error.no_answer = True
    return error
