"""Servers by name, the meanings of their aliases, and the packages that they need."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from lazy_module import LazyModule
from stubs.model_server import ANSWER, StubServer
from waiting import PATIENCE

from prose_kernel.errors import NoProvider, ProviderAuth, ProviderError, UsageError
from prose_kernel.language.typed_answers import object_of
from prose_kernel.models import providers as loading
from prose_kernel.models.providers.model_calls import Conversation, LazyConnection
from prose_kernel.models.providers.vendors import ALIASES, BUILT_IN, MODELS, PREFIXES, find, model_id, options_of
from prose_kernel.models.usage_and_prices import cost_of
from prose_kernel.runtime.session_options import ModelOptions, ModelServer, SessionOptions, Surroundings

pydantic_models, pydantic_providers = LazyModule("pydantic_ai.models"), LazyModule("pydantic_ai.providers")


def options(**servers: ModelServer) -> SessionOptions:
    return SessionOptions(servers=servers)


def test_anthropics_aliases_are_the_newest_models_that_the_library_knows() -> None:
    server = find("anthropic", SessionOptions())
    for alias in ("sonnet", "opus", "haiku"):
        ids = [
            name.removeprefix("anthropic:")
            for name in pydantic_models.known_model_names()
            if name.startswith(f"anthropic:claude-{alias}-")
        ]
        newest = max(ids, key=lambda name: [int(part) for part in name.split("-")[2:] if part.isdecimal()])
        assert model_id("anthropic", server, alias) == newest
    assert model_id("anthropic", server, None) == model_id("anthropic", server, "sonnet")


@pytest.mark.parametrize("name", MODELS)
def test_the_default_models_of_a_vendor_are_known_to_the_library(name: str) -> None:
    """A single key is enough: every alias has a meaning, and the small model is the cheapest one."""
    server = find(name, SessionOptions())
    models = {alias: model_id(name, server, alias) for alias in ALIASES}
    assert {f"{name}:{model}" for model in models.values()} <= set(pydantic_models.known_model_names())
    assert model_id(name, server, None) == models["sonnet"]
    prices = {alias: cost_of(name, model, 0, 1_000_000) for alias, model in models.items()}
    assert prices["haiku"] is not None and all(prices["haiku"] <= (price or 0) for price in prices.values())


def test_default_models_apply_only_to_the_vendors_own_address() -> None:
    server = find("openai", options(openai=ModelServer(base_url="http://localhost:1/v1")))
    assert (server.model, dict(server.aliases)) == (None, {})
    server = find("openai", options(openai=ModelServer(aliases={"opus": "mine"})))
    assert server.aliases == {**MODELS["openai"], "opus": "mine"}


def test_every_prefix_exists_in_the_library() -> None:
    for name in PREFIXES:
        with contextlib.suppress(ImportError):  # known, but its client is not installed
            pydantic_providers.infer_provider_class(name)


@pytest.mark.parametrize("name", ["ollama", "llamacpp", "openrouter", "together"])
def test_an_alias_without_a_meaning_is_never_guessed(name: str) -> None:
    with pytest.raises(ProviderError) as failed:
        model_id(name, find(name, SessionOptions()), "opus")
    assert str(failed.value) == f"the model `opus` means nothing on {name}"
    assert failed.value.hint == f'write in prose.toml: [models.{name}] opus = "MODEL"'
    assert not failed.value.retryable


def test_options_of_an_alias() -> None:
    table, other = ModelOptions("m3", 50), ModelOptions(max_tokens=9)
    own = ModelServer(model="qwen3", aliases={"opus": "m3"}, options={"opus": table, "default": other})
    server = find("ollama", options(ollama=own))
    assert [options_of(server, alias) for alias in ("opus", "sonnet", None)] == [table, ModelOptions(), other]
    assert options_of(server, "default") == other
    assert model_id("ollama", server, "default") == "qwen3"
    known = find("anthropic", options(anthropic=ModelServer(options={"sonnet": other})))
    assert options_of(known, None) == options_of(known, "sonnet") == other  # without an alias it uses sonnet


def test_a_model_table_without_a_model_is_an_error() -> None:
    with pytest.raises(UsageError) as refused:
        find("ollama", options(ollama=ModelServer(options={"opus": ModelOptions(max_tokens=9)})))
    assert str(refused.value) == "[models.ollama.opus] does not say which model it is"
    assert refused.value.hint == 'add `model = "MODEL"` to it'


def test_the_model_of_a_session() -> None:
    server = find("ollama", options(ollama=ModelServer(aliases={"haiku": "llama3.3"}, model="qwen3")))
    assert server.base_url == "http://localhost:11434/v1"
    assert model_id("ollama", server, None) == "qwen3"
    assert model_id("ollama", server, "gemma4") == "gemma4"
    assert model_id("ollama", server, "haiku") == "llama3.3"
    with pytest.raises(ProviderError, match="nothing says which model of vllm to use") as failed:
        model_id("vllm", find("vllm", SessionOptions()), None)
    assert failed.value.hint == 'write `provider = "vllm:MODEL"`, or in prose.toml: [providers.vllm] model = "MODEL"'


def test_a_server_table_overrides_the_built_in_one() -> None:
    own = ModelServer(base_url="https://gateway.example.org", aliases={"opus": "claude-9"}, timeout=10.0)
    server = find("anthropic", options(anthropic=own))
    assert (server.kind, server.key, server.timeout) == ("anthropic", "ANTHROPIC_API_KEY", 10.0)
    assert server.base_url == "https://gateway.example.org"
    assert server.aliases == {**BUILT_IN["anthropic"].aliases, "opus": "claude-9"}


def test_a_key_goes_to_no_server_by_accident() -> None:
    mine = find("mine", options(mine=ModelServer("openai", "https://models.example.org/v1")))
    assert mine.key == ""


@pytest.mark.parametrize(
    ("name", "servers", "message", "hint"),
    [
        ("antropic", {}, "there is no provider `antropic`", "did you mean `anthropic`?"),
        ("zzzzzzzz", {}, "there is no provider `zzzzzzzz`", "known model servers: anthropic, openai, "),
        (
            "mine",
            {"mine": ModelServer(base_url="http://x/v1")},
            "[providers.mine] does not say what it speaks",
            "add `kind",
        ),
        ("mine", {"mine": ModelServer("openai")}, "[providers.mine] has no base_url", "add `base_url"),
        (
            "mine",
            {"mine": ModelServer("openai", base_url="127.0.0.1:8000/v1")},
            "the base_url of [providers.mine] does not begin with http:// or https://",
            "write it like this: `base_url",
        ),
    ],
)
def test_invalid_names_and_tables_are_usage_errors(name: str, servers: Any, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as failed:
        find(name, options(**servers))
    assert str(failed.value) == message
    assert failed.value.hint is not None and failed.value.hint.startswith(hint)


# ---------------------------------------------------------------- other vendors, by the library


def connection(name: str, tmp_path: Path, **environment: str) -> LazyConnection:
    return LazyConnection(name, find(name, SessionOptions()), Surroundings(str(tmp_path), environment=environment))


async def test_a_vendor_without_its_client_names_the_pip_command(tmp_path: Path) -> None:
    for name in ("mistral", "cohere", "groq"):
        variable = find(name, SessionOptions()).key or ""
        door = connection(name, tmp_path, **{variable: "k"})
        link = await door.open("m")
        with pytest.raises(NoProvider) as failed:
            await link.converse(Conversation("m", "Hi"), lambda _: None)
        await door.close()
        assert str(failed.value) == f"the provider {name} needs packages that are not installed"
        assert str(failed.value.hint).startswith(f"pip install 'pydantic-ai-slim[{name}]' (in a notebook: %pip ")


async def test_a_vendor_without_its_key_names_the_variable(tmp_path: Path) -> None:
    for name in ("mistral", "deepseek", "xai"):
        with pytest.raises(ProviderAuth, match=f"the environment variable {PREFIXES[name]} is not set"):
            await connection(name, tmp_path).open("m")


async def test_credentials_that_the_library_finds_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    door = connection("vercel", tmp_path)
    link = await door.open("m")
    with pytest.raises(ProviderAuth, match="VERCEL_AI_GATEWAY_API_KEY or VERCEL_OIDC_TOKEN is not set"):
        await link.converse(Conversation("m", "Hi"), lambda _: None)
    await door.close()


@pytest.mark.parametrize("name", ["ollama", "openrouter", "vllm", "llamacpp", "lmstudio", "moonshotai", "sambanova"])
async def test_a_server_with_openais_format_answers_and_judges(name: str, stub: StubServer, tmp_path: Path) -> None:
    own = ModelServer(base_url=stub.openai_url)
    server = find(name, options(**{name: own}))
    environment = {server.key: "k"} if server.key else {}
    door = LazyConnection(name, server, Surroundings(str(tmp_path), environment=environment))
    link = await door.open("openai/ok-0")
    reply = await link.converse(Conversation("openai/ok-0", "Hi", "Be kind."), lambda _: None)
    wanted = object_of({"reason": {"type": "string"}})
    judged = await link.converse(Conversation("openai/json-0", "So?", output=wanted, streams=False), lambda _: None)
    await door.close()
    assert (reply.text, reply.model) == (ANSWER, "openai/ok-0")
    assert json.loads(judged.text) == {"reason": "because"}
    assert stub.last is not None and stub.last.path == "/v1/chat/completions"


# ---------------------------------------------------------------- loading


async def test_a_module_is_imported_once_and_outside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_module.py").write_text(
        "import threading\nthread = threading.current_thread().name\nstarted.append(1)\nready.wait(10)\n".replace(
            "started", "__import__('sys').slow_started"
        ).replace("ready", "__import__('sys').slow_ready")
    )
    monkeypatch.setattr(sys, "slow_started", [], raising=False)
    monkeypatch.setattr(sys, "slow_ready", threading.Event(), raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    loads = [asyncio.create_task(loading.load("slow_module", feature="it", extra="llm")) for _ in range(20)]
    impatient = asyncio.create_task(loading.load("slow_module", feature="it", extra="llm"))
    for _ in range(5):
        await asyncio.sleep(0)  # the loop runs while the module is being imported
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    sys.slow_ready.set()  # type: ignore[attr-defined]
    modules = await asyncio.gather(*loads)
    assert len(set(map(id, modules))) == 1
    assert sys.slow_started == [1]  # type: ignore[attr-defined]
    assert modules[0].thread != threading.main_thread().name
    sys.modules.pop("slow_module")
    loading._loading.pop("slow_module")


async def test_a_module_is_imported_later_if_no_thread_could_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    (tmp_path / "later_module.py").write_text("here = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with monkeypatch.context() as at_the_limit:
        at_the_limit.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            await loading.load("later_module", feature="it", extra="llm")
    async with asyncio.timeout(PATIENCE):
        assert (await loading.load("later_module", feature="it", extra="llm")).here
    sys.modules.pop("later_module")
    loading._loading.pop("later_module")


async def test_a_missing_extra_is_one_clear_error_and_can_be_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the module is written twice within a second
    module = tmp_path / "needs_more.py"
    module.write_text("import not_installed_anywhere\n")
    errors = await asyncio.gather(
        *(loading.load("needs_more", feature="the provider anthropic", extra="llm") for _ in range(3)),
        return_exceptions=True,
    )
    for error in errors:
        assert isinstance(error, NoProvider)
        assert str(error) == "the provider anthropic needs packages that are not installed: the extra [llm]"
        assert error.hint == (
            "pip install 'prose_kernel[llm]' (in a notebook: %pip install 'prose_kernel[llm]'), then restart"
        )
    module.write_text("here = True\n")
    importlib.invalidate_caches()
    assert (await loading.load("needs_more", feature="it", extra="llm")).here
    sys.modules.pop("needs_more")
    loading._loading.pop("needs_more")
