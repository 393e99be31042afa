"""Converts the errors of model servers: each error of the library becomes one from our tree (2.1).

Messages are short and stable: no ids, no keys, no addresses with passwords, and only the part of the server's message
that names the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx2
from pydantic_ai import exceptions as library

from prose_kernel import errors
from prose_kernel.language.text import one_line
from prose_kernel.models.providers import missing
from prose_kernel.runtime.redaction import hidden_of_process
from prose_kernel.runtime.secret_patterns import QUOTED

LONGEST_MESSAGE = 200  # characters that are kept of a server's message


@dataclass(frozen=True, slots=True)
class ErrorPlace:
    """The place of an error: the server's name, the variable of its key, its address. The key is needed only to remove
    it."""

    name: str
    variable: str = ""
    address: str = ""
    key: str = field(default="", repr=False)


def provider_error(problem: BaseException, at: ErrorPlace, model: str = "") -> errors.ProviderError:
    """Return the error of our tree for a failure of the library, of a vendor's client or of the connection."""
    for cause in _chain(problem):
        if isinstance(cause, errors.ProviderError):
            if not str(cause).startswith(at.name):  # raised below the library: add the server's name
                cause.args = (f"{at.name}: {cause}",)
            return cause
    match problem:
        case library.ModelHTTPError() | library.ModelAPIError():
            return _api_error(problem, at, model)
        case library.UsageLimitExceeded():
            return errors.ProviderError(
                f"{at.name}: the model had not answered when its rounds were used up",
                retryable=False,
                hint="`tool_rounds` bounds how often a session may go back to the model",
            )
        case library.ContentFilterError():
            return errors.ProviderBadReply(f"{at.name}: the model declined to answer", retryable=False)
        case library.IncompleteToolCall():
            return errors.ProviderBadReply(
                f"{at.name}: the limit of tokens was reached in the middle of a call of a tool",
                retryable=False,
                hint=f"raise max_tokens in [providers.{at.name}]",
            )
        case library.UnexpectedModelBehavior():
            message = str(problem.message)
            empty = "without content" in message or "empty" in message.lower()
            why = "it is empty" if empty else "it has another format"
            return errors.ProviderBadReply(f"{at.name}: the reply makes no sense: {why}")
        case library.UserError():
            return _refused_by_library(problem, at)
        case ImportError():
            return _not_installed(problem, at)
        case TimeoutError() | httpx2.TimeoutException():
            return _timeout(at)
        case httpx2.HTTPError() | OSError():
            return _connection(at)
        case _:
            return errors.ProviderBadReply(f"{at.name}: the reply makes no sense")


def _api_error(problem: library.ModelAPIError, at: ErrorPlace, model: str) -> errors.ProviderError:
    match problem:
        case library.ModelContextWindowExceededError():
            return _too_long(at)
        case library.ModelAuthenticationError():
            return _auth(problem, at)
        case library.ModelQuotaExceededError():
            return errors.ProviderAuth(f"{at.name}: the account has no quota or credit left")
        case library.ModelRateLimitError():
            return errors.ProviderRateLimit(f"{at.name}: too many requests", retry_after=problem.retry_after)
        case library.ModelUnavailableError():
            text = f"{at.name}: the server is overloaded or down for now"
            return errors.ProviderOverloaded(text, busy=True, retry_after=problem.retry_after)
        case library.ModelServerError():
            return errors.ProviderOverloaded(f"{at.name}: the server failed inside")
        case library.ModelTimeoutError() | library.ModelRequestTimeout():
            return _timeout(at)
        case library.ModelConnectionError():
            return _connection(at, reached=problem.phase not in ("connect", "pool"))
        case library.ModelNotFoundError():
            return errors.ProviderError(
                f"{at.name}: there is no model `{one_line(model)}`",
                retryable=False,
                hint=_which_model(problem, at, model),
            )
    status = problem.status_code if isinstance(problem, library.ModelHTTPError) else None
    if status is None and any(isinstance(cause, ValueError) for cause in _chain(problem)):
        return errors.ProviderBadReply(f"{at.name}: the reply makes no sense: it is not JSON")
    if status == 413:
        return _too_long(at)
    if status in (408, 409, 425):
        return errors.ProviderOverloaded(f"{at.name}: the server cannot take the request now (status {status})")
    message = _message_of(problem, at)
    hint = None
    if "tool" in message.lower() and isinstance(problem, library.ModelRequestRejectedError):
        hint = f"if the model cannot call tools, write `tools = false` in [providers.{at.name}]"
    summary = "the server refuses the request" if status is not None else "the server reports an error"
    return errors.ProviderError(
        f"{at.name}: {summary}" + (f": {message}" if message else ""), retryable=status is None, hint=hint
    )


def _auth(problem: library.ModelAPIError, at: ErrorPlace) -> errors.ProviderAuth:
    status = problem.status_code if isinstance(problem, library.ModelHTTPError) else 401
    if not at.variable:
        return errors.ProviderAuth(
            f"{at.name}: the server wants a key",
            hint=f'name its variable in prose.toml: [providers.{at.name}] key = "NAME"',
        )
    if status == 403:
        return errors.ProviderAuth(f"{at.name}: the key in {at.variable} has no right to this")
    return errors.ProviderAuth(
        f"{at.name}: the key in {at.variable} is not accepted", hint="is it complete, and still valid?"
    )


def _timeout(at: ErrorPlace) -> errors.ProviderTimeout:
    return errors.ProviderTimeout(
        f"{at.name}: no answer in time", hint=f"raise `timeout` in [providers.{at.name}] if it is slow"
    )


def _connection(at: ErrorPlace, *, reached: bool = True) -> errors.ProviderConnection:
    if reached:
        return errors.ProviderConnection(f"{at.name}: the connection broke before the answer was whole")
    address = _clean(at.address, at) if at.address else ""
    hint = f"is the server at {address} running?" if address else "is this machine connected to the internet?"
    return errors.ProviderConnection(f"{at.name}: the server cannot be reached", hint=hint)


def _too_long(at: ErrorPlace) -> errors.ContextTooLong:
    return errors.ContextTooLong(
        f"{at.name}: the message is longer than the model takes", hint="pass less context, or take a larger model"
    )


def _which_model(problem: library.ModelAPIError, at: ErrorPlace, model: str) -> str:
    suggested = getattr(problem, "suggested_model_id", None)
    if isinstance(suggested, str) and suggested:
        return f"did you mean `{one_line(suggested.rpartition(':')[2])}`?"
    if at.name == "ollama":
        return f"`ollama pull {one_line(model)}` fetches it"
    return "is its name right, and the server's base_url?"


def _refused_by_library(problem: library.UserError, at: ErrorPlace) -> errors.ProviderError:
    variables = re.findall(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`", problem.message)
    if variables and "environment" in problem.message:
        named = " or ".join(dict.fromkeys(variables))
        return errors.ProviderAuth(f"there is no key for {at.name}: the environment variable {named} is not set")
    hint = f"try another `judge_output` in [providers.{at.name}]" if "structured output" in problem.message else None
    return errors.ProviderError(f"{at.name}: {_clean(problem.message, at)}", retryable=False, hint=hint)


def _not_installed(problem: ImportError, at: ErrorPlace) -> errors.ProviderError:
    """Return the error for a missing package; the library's message names the extra that installs a vendor's client."""
    if found := re.search(r"pydantic-ai-slim\[([\w-]+)\]", str(problem)):
        line = f"pip install 'pydantic-ai-slim[{found[1]}]'"
        message = f"the provider {at.name} needs packages that are not installed"
        return errors.NoProvider(message, hint=f"{line} (in a notebook: %{line}), then restart")
    return missing(f"the provider {at.name}", "llm")


# ---------------------------------------------------------------- messages of the server


def _chain(problem: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = problem
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


_IDS = re.compile(
    r"\s*[(\[][^()\[\]]*\b(?:request|req|id|trace)\b[^()\[\]]*[)\]]"  # (request id: ...)
    r"|\b(?:req|request|msg|resp|run|org|proj|user|acct|chatcmpl|cmpl)[-_][A-Za-z0-9-]{4,}"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{20,}\b|\b[0-9a-fA-F]{16,}\b",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(\b\w{1,30}://)[^/\s@]+@|(?<=\w)\?[^\s\"']*")  # its user and its query


def _message_of(problem: library.ModelAPIError, at: ErrorPlace) -> str:
    """Return the server's own message; "" if its reply has none."""
    body = problem.body
    for _ in range(3):
        if isinstance(body, dict):
            body = body.get("error") or body.get("message") or body.get("detail")
    if not isinstance(body, str) or "<" in body[:20]:
        return ""
    return _clean(body, at)


def _clean(text: str, at: ErrorPlace) -> str:
    if len(at.key) >= 6:  # a shorter key would match ordinary letters of the message
        text = text.replace(at.key, "…")
    text = QUOTED.sub("…", hidden_of_process()(text[: LONGEST_MESSAGE * 8]))
    text = _ADDRESS.sub(lambda match: match[1] or "", text)
    return one_line(_IDS.sub("", text), LONGEST_MESSAGE)
