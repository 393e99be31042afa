"""The model servers that are known by name, and the meaning of model aliases on each of them (sessions.md 2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from msgspec import Struct

from prose_kernel.errors import ProviderError, UsageError
from prose_kernel.language.nearest import Nearest, did_you_mean, nearest_hint
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped
from prose_kernel.runtime.session_options import ModelOptions, ModelServer, SessionOptions

ALIASES = ("sonnet", "opus", "haiku")
DEFAULT = "default"  # the alias of sessions without a model

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

# The other prefixes of pydantic-ai's model strings, each with the variable of its key; empty: the library itself looks
# for credentials of several kinds.
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


# The default meaning of aliases at vendors' own addresses: a medium, a large and a small model that the library knows.
# A key is enough to use them.
MODELS: Mapping[str, Mapping[str, str]] = {
    "openai": {"sonnet": "gpt-6.1-terra", "opus": "gpt-6.1-sol", "haiku": "gpt-6-luna"},
    "google": {"sonnet": "gemini-3.8-flash", "opus": "gemini-4-argon", "haiku": "gemini-3.5-flash-lite"},
    "mistral": {"sonnet": "mistral-medium-latest", "opus": "mistral-large-latest", "haiku": "mistral-small-latest"},
    "groq": {"sonnet": "openai/gpt-oss-120b", "opus": "openai/gpt-oss-120b", "haiku": "openai/gpt-oss-20b"},
    "deepseek": {"sonnet": "deepseek-v4-pro", "opus": "deepseek-v4-pro", "haiku": "deepseek-flash"},
    "xai": {"sonnet": "grok-4.3", "opus": "grok-4.7", "haiku": "grok-4-1-fast-reasoning"},
    "zai": {"sonnet": "glm-5.3", "opus": "glm-5.3", "haiku": "glm-5.3-flash"},
}

# The variables of keys of vendors with more than one; for the others it is `ModelServer.key`.
KEYS: Mapping[str, tuple[str, ...]] = {"google": ("GOOGLE_API_KEY", "GEMINI_API_KEY")}

# Vendors searched before the others, and one whose key people have for other purposes.
SHARED = (*MODELS, "huggingface")

# The module of a vendor's own client, and the extra of pydantic-ai that brings it; the others need `prose_kernel[llm]`.
CLIENTS: Mapping[str, tuple[str, str]] = {
    "google": ("google.genai", "google"),
    "mistral": ("mistralai", "mistral"),
    "groq": ("groq", "groq"),
    "xai": ("xai_sdk", "xai"),
    "cohere": ("cohere", "cohere"),
    "huggingface": ("huggingface_hub", "huggingface"),
}


def key_of(name: str, server: ModelServer, environment: Mapping[str, str]) -> str | None:
    """Return the variable that is set and has a key for this server; None if none is."""
    wanted = (server.key,) if server.key else KEYS.get(name, ())
    return next((variable for variable in wanted if environment.get(variable, "").strip()), None)


def install(name: str) -> str | None:
    """Return what `pip install` must install before this server can be used; None if nothing is missing."""
    module, extra = CLIENTS.get(name, ("openai", ""))
    package = f"pydantic-ai-slim[{extra}]" if extra and _is_installed("pydantic_ai") else "prose_kernel[llm]"
    return None if _is_installed("pydantic_ai") and _is_installed(module) else package


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


def names(options: SessionOptions) -> tuple[str, ...]:
    """Return all names that `find` accepts: the user's, then the built-in ones."""
    return tuple(dict.fromkeys((*options.servers, *BUILT_IN, *PREFIXES)))


def find(name: str, options: SessionOptions) -> ModelServer:
    """Return the server of that name: the user's table merged over the built-in one. Raises `UsageError` for an unknown
    name.

    A table with a new name must state its kind. A key is sent only if the table names its variable, so that the key of
    one vendor is never sent to another by accident.
    """
    built_in = BUILT_IN.get(name) or (ModelServer("", key=PREFIXES[name]) if name in PREFIXES else None)
    own = options.servers.get(name)
    if built_in is not None and name in MODELS and (own is None or own.base_url is None):
        built_in = replace(built_in, model="sonnet", aliases=MODELS[name])
    if own is None and built_in is None:
        known = names(options)
        hint = nearest_hint(name, known, f"known model servers: {', '.join(known)}")
        raise UsageError(f"there is no provider `{clipped(name, 120)}`", hint=hint)
    if own is None:
        assert built_in is not None
        return built_in
    server = own.over(built_in) if built_in is not None else own
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
    if server.base_url is not None and not server.base_url.lower().startswith(("http://", "https://")):
        problem = f"the base_url of [providers.{name}] does not begin with http:// or https://"
        raise UsageError(problem, hint='write it like this: `base_url = "http://localhost:8000/v1"`')
    return server if server.key is not None else replace(server, key="")


def model_id(name: str, server: ModelServer, alias: str | None) -> str:
    """Return the server's name of the model for an alias, or of the server's default one.

    Raises `ProviderError` for an alias without a meaning here, and if no model is configured; it never guesses.
    """
    wanted = _named(alias) or server.model
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


def options_of(server: ModelServer, alias: str | None) -> ModelOptions:
    """Return the options of the model that `model_id` returns. The price belongs to the model, whichever alias states
    it."""
    named = _named(alias)
    if named is None:
        found = server.options.get(DEFAULT) or server.options.get(server.model or "") or ModelOptions()
    else:
        found = server.options.get(named) or ModelOptions()
    if found.price is None:
        model = server.aliases.get(named or server.model or "", named or server.model)
        same = (each for each, one in server.options.items() if one.price and server.aliases.get(each, each) == model)
        if (alias := next(same, None)) is not None:
            return replace(found, price=server.options[alias].price)
    return found


class ModelTarget(Struct, frozen=True):
    """A model that may answer: the name of its server, the server, its id there, and its options."""

    name: str
    server: ModelServer
    model: str
    options: ModelOptions


def chain(name: str, options: SessionOptions, alias: str | None, default: str | None = None) -> tuple[ModelTarget, ...]:
    """Return the model for a session (`model_id`), then its fallbacks and their fallbacks, each model once.

    Raises `ProviderError` for an alias without a meaning, and for fallbacks in a cycle.
    """
    found: list[ModelTarget] = []
    try:
        _follow((name, alias or default or DEFAULT), options, found, ())
    except UsageError as problem:
        raise ProviderError(str(problem), retryable=False, hint=problem.hint) from None
    return tuple(found)


def check(name: str, options: SessionOptions) -> None:
    """Raise `UsageError` for an error in a server's tables, or in the fallbacks of its aliases."""
    for alias, one in find(name, options).options.items():
        if one.fallback:
            try:
                chain(name, options, alias)
            except ProviderError as problem:
                raise UsageError(f"[models.{name}.{alias}] fallback: {problem}", hint=problem.hint) from None


Place = tuple[str, str]
"""A server, and an alias or a model of it."""


def _follow(place: Place, options: SessionOptions, found: list[ModelTarget], above: tuple[Place, ...]) -> None:
    """Add the model of a place to `found`, then its fallbacks. An alias, or the name of a model, may refer to another
    server (`openai:gpt-5-mini`); the options of the alias apply there too."""
    name, alias = place
    if place in above:
        cycle = " → ".join(":".join(one) for one in (*above[above.index(place) :], place))
        raise ProviderError(f"it goes round in a circle: {cycle}", retryable=False, hint="take one of them out")
    server = find(name, options)
    model, asked = model_id(name, server, alias), options_of(server, alias)
    other = elsewhere(model, options)
    if other is None:
        targets = [ModelTarget(name, server, model, asked)]
    else:
        targets = []
        _follow(other, options, targets, (*above, place))
        targets = [replace(targets[0], options=asked.over(targets[0].options)), *targets[1:]]
    for one in targets:
        if not any((each.name, each.model) == (one.name, one.model) for each in found):
            found.append(one)
    for entry in asked.fallback:
        _follow(_fallback(entry, name, server, options), options, found, (*above, place))


def elsewhere(model: str, options: SessionOptions) -> Place | None:
    """Return the server and model in `SERVER:MODEL`; None if this is a server's own model name, which may contain
    colons."""
    head, _, rest = model.partition(":")
    return (head, rest) if rest and head in names(options) else None


def unpriced(target: ModelTarget) -> tuple[str, str]:
    """Return the message and the hint about a model without a price under a budget in US dollars."""
    line = f'[models.{target.name}.NAME] model = "{target.model}", price = {{ input = 3.0, output = 15.0 }}'
    return (
        f"a budget of money cannot count the model `{target.model}` of {target.name}: its price is not known",
        f'write in prose.toml: {line} (US dollars for a million tokens), or [budget] unpriced = "allow"',
    )


def _fallback(entry: str, name: str, server: ModelServer, options: SessionOptions) -> Place:
    """Return the place for an entry of `fallback` in a table of the server `name`."""
    known = names(options)
    head, colon, rest = entry.partition(":")
    if colon and head in known and rest:
        return head, rest
    if entry in server.aliases or entry in (*ALIASES, DEFAULT):
        return name, entry
    if entry in known:
        return entry, DEFAULT
    if head == "acp":
        hint: str | None = "a fallback is a model: an alias, SERVER or SERVER:ALIAS"
    else:
        near = Nearest()(head, known) if colon else Nearest()(entry, (*server.aliases, *known))
        near = f"{near}:{rest}" if near and colon else near
        hint = did_you_mean(near) or f"an alias of {name}, SERVER or SERVER:ALIAS"
    raise ProviderError(f"there is no model `{entry}` to fall back to", retryable=False, hint=hint)


def _named(alias: str | None) -> str | None:
    return None if alias == DEFAULT else alias
