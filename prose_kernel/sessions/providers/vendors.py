"""The model servers that are known by name, and what a model alias means on each of them (sessions.md 2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from prose_kernel.errors import ProviderError, UsageError
from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.runtime.session_options import ModelOptions, ModelServer, SessionOptions

ALIASES = ("sonnet", "opus", "haiku")
DEFAULT = "default"  # the alias of sessions that name none

_ANTHROPIC = {"sonnet": "claude-sonnet-5-5", "opus": "claude-opus-5-5", "haiku": "claude-haiku-5-5"}

BUILT_IN: Mapping[str, ModelServer] = {
    "anthropic": ModelServer("anthropic", key="ANTHROPIC_API_KEY", model="sonnet", aliases=_ANTHROPIC),
    # the vendor's own server, through its Responses API; a table with a base_url and kind = "openai" is plain chat
    "openai": ModelServer("", key="OPENAI_API_KEY", judge_output="native"),
    "openrouter": ModelServer("openai", "https://openrouter.ai/api/v1", key="OPENROUTER_API_KEY"),
    "ollama": ModelServer("openai", "http://localhost:11434/v1", key=""),
    "llamacpp": ModelServer("openai", "http://localhost:8080/v1", key="", model="default"),
    "vllm": ModelServer("openai", "http://localhost:8000/v1", key=""),
    "lmstudio": ModelServer("openai", "http://localhost:1234/v1", key=""),
}

# The other prefixes of pydantic-ai's model strings, each with the variable of its key; empty: the library looks for
# credentials of several kinds by itself.
PREFIXES: Mapping[str, str] = {
    "alibaba": "ALIBABA_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY",
    "bedrock": "",
    "cerebras": "CEREBRAS_API_KEY",
    "cohere": "CO_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "fireworks": "FIREWORKS_API_KEY",
    "google": "",
    "google-cloud": "",
    "groq": "GROQ_API_KEY",
    "heroku": "HEROKU_INFERENCE_KEY",
    "huggingface": "HF_TOKEN",
    "meta": "META_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "moonshotai": "MOONSHOTAI_API_KEY",
    "nebius": "NEBIUS_API_KEY",
    "sambanova": "SAMBANOVA_API_KEY",
    "together": "TOGETHER_API_KEY",
    "vercel": "",
    "xai": "XAI_API_KEY",
    "zai": "ZAI_API_KEY",
}


def names(options: SessionOptions) -> tuple[str, ...]:
    """All names that `find` knows: the user's, then the built-in ones."""
    return tuple(dict.fromkeys((*options.servers, *BUILT_IN, *PREFIXES)))


def find(name: str, options: SessionOptions) -> ModelServer:
    """The server of that name: the user's table laid over the built-in one. Raises `UsageError` for an unknown name.

    A table of a new name must say its kind. It sends a key only if it names the variable: the key of one vendor never
    goes to the server of another by accident.
    """
    built_in = BUILT_IN.get(name) or (ModelServer("", key=PREFIXES[name]) if name in PREFIXES else None)
    own = options.servers.get(name)
    if own is None and built_in is None:
        known = names(options)
        raise UsageError(
            f"there is no provider `{name}`",
            hint=did_you_mean(Nearest()(name, known)) or f"known model servers: {', '.join(known)}",
        )
    if own is None:
        assert built_in is not None
        return built_in
    server = _over(own, built_in) if built_in is not None else own
    for alias in server.options:
        if alias not in server.aliases and not (alias == DEFAULT and server.model):
            raise UsageError(
                f"[models.{name}.{alias}] does not say which model it is", hint='add `model = "MODEL"` to it'
            )
    if not server.kind and built_in is None:
        raise UsageError(
            f"[providers.{name}] does not say what it speaks",
            hint='add `kind = "openai"` (any OpenAI-compatible server) or `kind = "anthropic"`, and its base_url',
        )
    if built_in is None and server.base_url is None:
        raise UsageError(f"[providers.{name}] has no base_url", hint='add `base_url = "https://..."`')
    return server if server.key is not None else replace(server, key="")


def _over(own: ModelServer, under: ModelServer) -> ModelServer:
    """The user's fields where they say something, else the built-in ones; aliases one by one."""
    blank = ModelServer()
    stated = {f.name: getattr(own, f.name) for f in fields(own) if getattr(own, f.name) != getattr(blank, f.name)}
    merged = {"aliases": {**under.aliases, **own.aliases}, "options": {**under.options, **own.options}}
    return replace(under, **{**stated, **merged})


def model_id(name: str, server: ModelServer, alias: str | None, default: str | None = None) -> str:
    """The server's name of the model that a session wants: its alias, else the chosen default, else the server's.

    Raises `ProviderError` for an alias without a meaning here, and where nothing says which model: never a guess.
    """
    wanted = _named(alias or default) or server.model
    if wanted is None:
        raise ProviderError(
            f"nothing says which model of {name} to use",
            retryable=False,
            hint=f'write `provider = "{name}:MODEL"`, or in prose.toml: [providers.{name}] model = "MODEL"',
        )
    if wanted in server.aliases:
        return server.aliases[wanted]
    if wanted in ALIASES:
        lines = f'[models.{name}] {wanted} = "MODEL"'
        raise ProviderError(
            f"the model `{wanted}` means nothing on {name}", retryable=False, hint=f"write in prose.toml: {lines}"
        )
    return wanted


def options_of(server: ModelServer, alias: str | None, default: str | None = None) -> ModelOptions:
    """How the model that `model_id` finds is asked."""
    named = _named(alias or default)
    if named is None:
        return server.options.get(DEFAULT) or server.options.get(server.model or "") or ModelOptions()
    return server.options.get(named) or ModelOptions()


def _named(alias: str | None) -> str | None:
    return None if alias == DEFAULT else alias
