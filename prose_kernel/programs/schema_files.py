"""Reads files with the JSON Schema of typed answers (docs/how-to/typed-answers.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prose_kernel.errors import ImportProgramError
from prose_kernel.language import typed_answers
from prose_kernel.programs import files as program_files
from prose_kernel.programs.files import Location
from prose_kernel.runtime.typed_answers import require_schema


def read(file: Location, given: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the schema in a file, its references resolved, and the text of the file by its address.

    `given` are texts of a resumed run, by address. Raises `ImportProgramError` (E224).
    """
    try:
        text = given[file.address] if file.address in given else _text(file.address)
        schema = typed_answers.read(text)
        require_schema(schema)
    except (ValueError, program_files.Unreadable) as problem:
        raise unusable(file.shown, str(problem).removesuffix(", not a program")) from None
    return schema, {file.address: text}


def _text(address: str) -> str:
    if program_files.stamp(address).size > typed_answers.LARGEST * 4:
        raise ValueError(f"the schema is too large; at most {typed_answers.LARGEST:,} characters are sent")
    return program_files.read(address).decode("utf-8-sig", "replace")


def unusable(shown: str, problem: str) -> ImportProgramError:
    """Return the error for an unusable schema."""
    return ImportProgramError(f"{shown}: {problem}", code="E224", hint="or write the fields: `output: { ok: boolean }`")
