"""Contract files through the contents manager of a Jupyter server (jupyter.md 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tornado.web import HTTPError

from prose_kernel.notebook import server_extension

BRIEF = b"\xef\xbb\xbf---\r\nname: brief\r\nkind: function\r\n---\r\n\r\n### Execution\r\n\r\n```prose\r\nreturn 1\r\n```\r\n"


class Manager:
    """A contents manager of either kind, extended."""

    def __init__(self, directory: Path, base: type[Any]) -> None:
        (directory / "brief.prose.md").write_bytes(BRIEF)
        self.own = server_extension.with_contract_files(base)(root_dir=str(directory))

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            found = getattr(self.own, name)(*given, **more)
            return asyncio.run(found) if asyncio.iscoroutine(found) else found

        return call


@pytest.fixture(params=["AsyncFileContentsManager", "FileContentsManager"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    from jupyter_server.services.contents import filemanager

    made = Manager(tmp_path, getattr(filemanager, request.param))
    yield made
    made.own.notary.store.close()


def test_an_unchanged_notebook_saves_the_same_bytes(manager: Manager, tmp_path: Path) -> None:
    model = manager.get("brief.prose.md", type="notebook")
    assert (model["type"], model["format"], model["path"]) == ("notebook", "json", "brief.prose.md")
    assert [cell["cell_type"] for cell in model["content"]["cells"]] == ["raw", "markdown", "code"]
    saved = manager.save({"type": "notebook", "content": model["content"]}, "brief.prose.md")
    assert (saved["type"], saved["content"]) == ("notebook", None)
    assert (tmp_path / "brief.prose.md").read_bytes() == BRIEF
    assert manager.get("brief.prose.md", content=False, type="notebook")["type"] == "notebook"


def test_outputs_are_not_saved_and_changes_are(manager: Manager, tmp_path: Path) -> None:
    model = manager.get("brief.prose.md", type="notebook")
    cell = model["content"]["cells"][2]
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "seen"}]
    cell["source"] = "return 2"
    manager.save(model, "brief.prose.md")
    assert (tmp_path / "brief.prose.md").read_bytes() == BRIEF.replace(b"return 1", b"return 2")


def test_the_text_is_there_as_before_and_other_files_are_not_touched(manager: Manager, tmp_path: Path) -> None:
    text = manager.get("brief.prose.md")
    assert (text["type"], text["content"].encode()) == ("file", BRIEF)
    manager.save({"type": "file", "format": "text", "content": "---\n"}, "brief.prose.md")
    assert (tmp_path / "brief.prose.md").read_bytes() == b"---\n"
    new = manager.new_untitled(type="notebook")
    assert manager.get(manager.copy(new["path"])["path"])["content"]["cells"] == []


def test_what_cannot_be_saved_is_refused(manager: Manager, tmp_path: Path) -> None:
    model = manager.get("brief.prose.md", type="notebook")
    model["content"]["cells"][1]["attachments"] = {"a.png": {"image/png": "AAAA"}}
    for content in (model["content"], {}, "text"):
        with pytest.raises(HTTPError) as caught:
            manager.save({"type": "notebook", "content": content}, "brief.prose.md")
        assert caught.value.status_code == 400
    assert (tmp_path / "brief.prose.md").read_bytes() == BRIEF


def test_a_server_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the package installs it: the configuration of the environment, and a server that has linked its extensions."""
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / name))
    from jupyter_server.serverapp import ServerApp

    app = ServerApp()
    app.initialize(argv=[f"--ServerApp.root_dir={tmp_path}", "--allow-root"], new_httpserver=False)
    (tmp_path / "brief.prose.md").write_bytes(BRIEF)
    model = asyncio.run(app.contents_manager.get("brief.prose.md", type="notebook"))
    assert len(model["content"]["cells"]) == 3
