"""The records of a journal, in the order in which they are written (docs/durability.md).

Every record is one object of JSON on a line of its own; `k` says which. A key is the path of a request, with the number
of the attempt behind it where there is more than one. `t` is when a record was made, in milliseconds since 1970: for
reports alone, nothing depends on it (0: not known).
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Raw, Struct, field

VERSION: Final = 1

NOTHING: Final = Raw(b"null")


class Head(Struct, frozen=True, tag="head", tag_field="k", omit_defaults=True):
    """How the run began. `directory` is where it was started, `program` its file or the notebook's name, `settings`
    those that decide what the program does. `origin` is the address of a program from elsewhere. A branch names the
    runs that it came from, the nearest last; `branch_at` is the number of records that it shares with that one, and
    `changed` that its text was changed then."""

    run: str
    program: str
    language: str
    directory: str
    version: int = VERSION
    package: str = ""
    notebook: bool = False
    notebook_path: str = ""
    origin: str = ""
    started: str = ""
    supplied: dict[str, str] = field(default_factory=dict)
    decisions: dict[str, bool] = field(default_factory=dict)
    settings: dict[str, str | int | bool | None] = field(default_factory=dict)
    gate_files: bool = False
    elsewhere: bool = False
    branch_of: list[str] = field(default_factory=list)
    branch_at: int = 0
    changed: bool = False

    @property
    def interactive(self) -> bool:
        """Whether a person ran it cell by cell: the program of a notebook that was run as a file is that file."""
        return self.notebook and not self.program.endswith(".ipynb")


class Text(Struct, frozen=True, tag="text", tag_field="k", omit_defaults=True):
    """A file or a cell begins to run: its text, and what a person set before it. `prompt` is the number beside the cell
    in the notebook, 0 without one; `number`, the place in the run, is that of addresses (`c3/1`)."""

    number: int
    language: str
    name: str
    text: str
    inputs: dict[str, str] = field(default_factory=dict)
    supplied: dict[str, str] = field(default_factory=dict)
    directory: str = ""
    profile: str = "default"
    t: int = 0
    prompt: int = 0


class Asked(Struct, frozen=True, tag="asked", tag_field="k", omit_defaults=True):
    """Something was asked of the outside. `said` is its text for people, cut; `digest` stands for all of it. `gate` and
    `record` are the name of a gate and the id of its record."""

    key: str
    kind: str
    digest: str
    said: str = ""
    looks: int = 0
    t: int = 0
    gate: str = ""
    record: str = ""


class Answered(Struct, frozen=True, tag="answered", tag_field="k", omit_defaults=True):
    """The program got its answer: a value or an error, or the branch was cancelled.

    `at_once`: the branch never had to wait. The others have got theirs before when all branches stood still. `aside`
    is what those behind the ports have noted (`runtime/asides.py`). `again` is when it was asked once more, in a run
    that was resumed.
    """

    key: str
    value: Raw = NOTHING
    error: Raw = NOTHING
    cancelled: bool = False
    at_once: bool = False
    aside: Raw = NOTHING
    t: int = 0
    again: int = 0


class Noted(Struct, frozen=True, tag="noted", tag_field="k", omit_defaults=True):
    """Something that the program looked up outside, without having to wait."""

    key: str
    value: Raw


class Interrupted(Struct, frozen=True, tag="interrupted", tag_field="k", omit_defaults=True):
    """The person interrupted the text. `looks` tells where a computing program stood. `hasty`: it was not waited until
    the program came to a point that a replay finds again, and the text asks nothing more."""

    looks: int = 0
    hasty: bool = False


class Ended(Struct, frozen=True, tag="ended", tag_field="k", omit_defaults=True):
    """The text has ended; `cause` is the key of the answer that it failed for, where there is one."""

    number: int
    status: Literal["done", "failed", "interrupted"] = "done"
    cause: str = ""
    message: str = ""
    t: int = 0


class Finished(Struct, frozen=True, tag="finished", tag_field="k", omit_defaults=True):
    """The run is over, and was closed properly."""

    status: Literal["done", "failed", "interrupted"] = "done"


class Rewound(Struct, frozen=True, tag="rewound", tag_field="k", omit_defaults=True):
    """The run continues after the record with this number; later ones no longer count."""

    to: int


Record = Head | Text | Asked | Answered | Noted | Interrupted | Ended | Finished | Rewound
