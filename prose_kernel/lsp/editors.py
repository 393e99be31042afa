"""Files for editors: an extension for VS Code with the grammars, and the registration in JupyterLab."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final
from zipfile import ZIP_DEFLATED, ZipFile

from prose_kernel._version import __version__
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language

FOLDER: Final = f"prose-kernel.prose-{__version__}"
"""The name of the extension's folder and package, in the form that VS Code expects."""
_COMMAND: Final = "import sys; from prose_kernel.cli.main import main; sys.exit(main())"


def extension() -> dict[str, str]:
    """Return the files of the extension by name: its manifest, and a grammar and a configuration for each language."""
    known = [language for language in languages.LANGUAGES.values() if language.grammar()]
    files = {"package.json": _text(_package(known))}
    for language in known:
        files[_grammar_file(language)] = _text(language.grammar())
        files[_configuration_file(language)] = _text(_configuration(language))
    return files


def write_extension(directory: Path) -> Path:
    """Write the extension into a directory, replacing earlier ones: a package that VS Code installs, and a folder with
    its files. Return the package."""
    package = directory / f"{FOLDER}.vsix"
    directory.mkdir(parents=True, exist_ok=True)
    with ZipFile(package, "w", ZIP_DEFLATED) as archive:
        for name, text in extension().items():
            file = directory / FOLDER / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            archive.write(file, f"extension/{name}")
    return package


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _grammar_file(language: Language) -> str:
    return f"syntaxes/{language.magic}.tmLanguage.json"


def _configuration_file(language: Language) -> str:
    return f"{language.magic}.language-configuration.json"


def _package(known: list[Language]) -> dict[str, Any]:
    return {
        "name": "prose",
        "publisher": "prose-kernel",
        "displayName": "OpenProse and VVM",
        "description": "Syntax highlighting of .prose and .vvm files",
        "version": __version__,
        "license": "MIT",
        "engines": {"vscode": "^1.75.0"},
        "categories": ["Programming Languages"],
        "contributes": {
            "languages": [
                {
                    "id": language.magic,
                    "aliases": [language.title],
                    "extensions": [one for one in language.suffixes if not one.endswith(".md")],
                    "configuration": f"./{_configuration_file(language)}",
                }
                for language in known
            ],
            "grammars": [
                {
                    "language": language.magic,
                    "scopeName": language.grammar()["scopeName"],
                    "path": f"./{_grammar_file(language)}",
                }
                for language in known
            ],
        },
    }


def _configuration(language: Language) -> dict[str, Any]:
    """Return the rules by which an editor closes brackets, comments out lines and indents."""
    pairs = [["(", ")"], ["[", "]"], ["{", "}"]]
    quotes = [['"', '"'], *([mark, mark] for mark in language.delimiters if len(mark) < 3)]
    closing = [{"open": one, "close": two, "notIn": ["string", "comment"]} for one, two in pairs + quotes]
    return {
        "comments": {"lineComment": "#"},
        "brackets": pairs,
        "autoClosingPairs": closing,
        "surroundingPairs": pairs + quotes,
        "indentationRules": {
            "increaseIndentPattern": r"^\s*[^#]*:\s*(#.*)?$",
            "decreaseIndentPattern": r"^\s*(elif|else|catch|except|finally)\b.*:\s*(#.*)?$",
        },
        "folding": {"offSide": True},
    }


def jupyter_specification(manager: object) -> dict[str, Any]:
    """Return the specification for jupyter-lsp, so that JupyterLab starts the server for both languages.

    It comes from the entry point `jupyter_lsp_spec_v1`; it is empty while pygls is missing.
    """
    from importlib.util import find_spec

    if find_spec("pygls") is None:
        return {}
    return {
        "prose-lsp": {
            "version": 2,
            "argv": [sys.executable, "-P", "-c", _COMMAND, "lsp"],
            "languages": [language.magic for language in languages.LANGUAGES.values()],
            "mime_types": [f"text/x-{language.magic}" for language in languages.LANGUAGES.values()],
            "display_name": "prose lsp",
            "urls": {},
            "install": {"pip": "pip install 'prose_kernel[lsp]'"},
        }
    }
