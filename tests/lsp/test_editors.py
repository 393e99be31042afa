"""Support for editors in addition to the server: the extension for VS Code, and the entry for JupyterLab."""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points
from pathlib import Path
from zipfile import ZipFile

import pytest
from needs import needs_module

from prose_kernel.cli.main import main
from prose_kernel.lsp.editors import FOLDER, jupyter_specification
from prose_kernel.runs import languages


def test_the_extension_for_vs_code_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lsp", "--vscode", str(tmp_path / "extensions")]) == 0
    folder = tmp_path / "extensions" / FOLDER
    package = tmp_path / "extensions" / f"{FOLDER}.vsix"
    assert capsys.readouterr().out == f"Install it: code --install-extension {package}\n"
    with ZipFile(package) as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert packed == {f"extension/{file.relative_to(folder).as_posix()}": file.read_bytes() for file in files}
    contributes = json.loads((folder / "package.json").read_text())["contributes"]
    assert [one["extensions"] for one in contributes["languages"]] == [[".prose"], [".vvm"]]
    for one in contributes["languages"]:
        assert json.loads((folder / one["configuration"]).read_text())["comments"] == {"lineComment": "#"}
    for one in contributes["grammars"]:
        grammar = json.loads((folder / one["path"]).read_text())
        assert grammar["scopeName"] == one["scopeName"] and grammar["patterns"]
    assert main(["lsp", "--vscode", str(tmp_path / "extensions")]) == 0  # a second time over the same files


def test_a_directory_that_cannot_be_written_is_an_error_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["lsp", "--vscode", str(tmp_path / "file" / "inside")]) == 2
    assert capsys.readouterr().err == f"Error: {tmp_path}/file/inside cannot be written: not a directory\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # traitlets warns about jupyter_lsp
def test_jupyter_lsp_finds_the_server_for_the_mime_types_of_the_kernels() -> None:
    from prose_kernel.notebook.notebook_files import language_info

    needs_module("jupyter_lsp")
    from jupyter_lsp import LanguageServerManager

    manager = LanguageServerManager()
    manager.initialize()
    found = manager.language_servers["prose-lsp"]
    assert found["argv"][0] == sys.executable and found["argv"][-1] == "lsp"
    assert found["mime_types"] == [language_info(one)["mimetype"] for one in languages.LANGUAGES.values()]
    assert found["languages"] == ["prose", "vvm"]
    assert "prose-lsp" in [point.name for point in entry_points(group="jupyter_lsp_spec_v1")]


def test_jupyter_gets_no_server_without_pygls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygls", None)
    assert jupyter_specification(None) == {}


def test_the_command_without_the_extra_shows_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pygls.capabilities", None)
    monkeypatch.delitem(sys.modules, "prose_kernel.lsp.server", raising=False)
    assert main(["lsp"]) == 2
    assert capsys.readouterr().err == "Error: the language server needs pygls\nhint: pip install 'prose_kernel[lsp]'\n"
