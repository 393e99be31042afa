"""The ways to ask a server for a typed answer: natively if possible, else by a tool, else only in words.

Ways that a server has refused or ignored are remembered for the run. Like the adapter, this module imports the library.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelHTTPError
from pydantic_ai.models import Model

from prose_kernel.models.providers.model_calls import Conversation
from prose_kernel.runtime.session_options import ModelServer

OutputMode = Literal["native", "tool", "words"]
"""`native`: the server enforces the schema (`response_format`, `output_format`); `tool`: the answer is a call of a tool
with this schema; `words`: the message describes the answer. Each of them contains the schema once."""

ANSWER: Final = "answer"
"""The name of the schema, and of the tool."""

_REFUSED: Final = (400, 404, 415, 422, 501)


class OutputModes:
    """The ways that the models of one server have refused in this run."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._begin: dict[str, int] = {}

    def of(self, model: Model[Any], asked: Conversation) -> list[OutputMode]:
        """Return the ways to request the answer, best first; `words` is always among them."""
        if asked.output is None:
            return ["words"]
        calls = self._server.tools and not any(tool.name == ANSWER for tool in asked.tools)
        possible: dict[OutputMode, bool] = {
            "native": self._server.judge_output in ("native", None)
            and bool(model.profile.get("supports_json_schema_output")),
            "tool": calls and self._server.judge_output != "prompted" and asked.output.get("type") == "object",
            "words": True,
        }
        begin = self._begin.get(asked.model, 0)
        return [way for at, (way, can) in enumerate(possible.items()) if at >= begin and can]

    def may_ignore(self, way: OutputMode) -> bool:
        """Return whether the server may accept the request without enforcing the schema. Vendors' servers do not, and
        neither do servers whose table sets `judge_output`."""
        return way != "words" and self._server.base_url is not None and self._server.judge_output is None

    def worked(self, model: str, way: OutputMode) -> None:
        """Record that the ways before this one were refused or ignored."""
        self._begin[model] = ("native", "tool", "words").index(way)


def is_refused(problem: BaseException) -> bool:
    """Return whether a server may have refused the way of asking, not the question."""
    if isinstance(problem, ModelContextWindowExceededError) or not isinstance(problem, ModelHTTPError):
        return False
    return problem.status_code in _REFUSED
