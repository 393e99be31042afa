"""Open contract files in JupyterLab: an extension of the Jupyter server whose contents manager opens `NAME.prose.md` as
a notebook and saves it as Markdown (docs/reference/jupyter.md 10). All other files are left to the base class.

The manager's class is extended when the extension is linked, before the server makes the manager. Other extensions
that do the same, and managers of other stores, continue to work.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prose_kernel.language.contracts import SUFFIX

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

Model = dict[str, Any]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _link_jupyter_server_extension(app: ServerApp) -> None:
    app.contents_manager_class = with_contract_files(app.contents_manager_class)


def _load_jupyter_server_extension(app: ServerApp) -> None:
    """Do nothing: linking the extension has done everything."""


def with_contract_files(manager: type[Any]) -> type[Any]:
    """Return a subclass of a contents manager that opens contract files as notebooks if a notebook is requested."""
    return type(f"{manager.__name__}WithContractFiles", (_WithContractFiles, manager), {"__doc__": manager.__doc__})


class _WithContractFiles:
    """`get` and `save` of a contents manager, whose methods may be coroutines."""

    def get(
        self, path: str, content: bool = True, type: str | None = None, format: str | None = None, **more: Any
    ) -> Any:
        base: Any = super()
        if not _as_notebook(path, type):
            return base.get(path, content, type, format, **more)
        return _apply(base.get(path, content, "file", "text", **more), lambda model: _notebook(model, path))

    def save(self, model: Model, path: str = "") -> Any:
        base: Any = super()
        if not _as_notebook(path, model.get("type")):
            return base.save(model, path)
        return _apply(base.save(_file(model), path), lambda saved: {**saved, "type": "notebook", "mimetype": None})


def _as_notebook(path: str, type: str | None) -> bool:
    return type == "notebook" and path.endswith(SUFFIX)


def _apply(found: Any, change: Callable[[Model], Model]) -> Any:
    """Return the changed model; if the model is awaitable, an awaitable of the changed one."""
    if not inspect.isawaitable(found):
        return change(found)

    async def changed() -> Model:
        return change(await found)

    return changed()


def _notebook(model: Model, path: str) -> Model:
    """Convert the model of a text file to the model of a notebook, which keeps the `hash` and the times of the file."""
    if model["content"] is None:
        return {**model, "type": "notebook", "format": None, "mimetype": None}
    import nbformat

    from prose_kernel.notebook.contract_notebooks import as_notebook

    book = nbformat.from_dict(as_notebook(model["content"], path.rpartition("/")[2]))  # type: ignore[no-untyped-call]
    for cell in book["cells"]:
        cell["source"] = "".join(cell["source"])
    return {**model, "type": "notebook", "format": "json", "mimetype": None, "content": book}


def _file(model: Model) -> Model:
    """Convert the model of a notebook to that of a text file. Raises `HTTPError` if it cannot be a contract file."""
    from tornado.web import HTTPError

    from prose_kernel.errors import UsageError
    from prose_kernel.notebook.contract_notebooks import as_file

    if not isinstance(model.get("content"), dict) or not isinstance(model["content"].get("cells"), list):
        raise HTTPError(400, "the content is not a notebook")
    try:
        text = as_file(model["content"])
    except UsageError as problem:
        raise HTTPError(400, f"{problem}: {problem.hint}" if problem.hint else str(problem)) from None
    return {**model, "type": "file", "format": "text", "content": text}
