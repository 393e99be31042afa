"""Settings: their sources and precedence, and one error for each mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from prose_kernel.errors import UsageError
from prose_kernel.runs import settings
from prose_kernel.runs.settings import Settings
from prose_kernel.runtime.session_options import (
    AgentCommand,
    CassetteOptions,
    JudgeOptions,
    ModelOptions,
    ModelServer,
    Permissions,
)

DOCS = Path(__file__).parents[2] / "docs"


def load(directory: Path, text: str = "", environment: dict[str, str] | None = None, **arguments: object) -> Settings:
    if text:
        (directory / "prose.toml").write_text(text)
    return settings.load(directory, environment or {}, **arguments)


def test_settings_have_defaults(tmp_path: Path) -> None:
    assert load(tmp_path) == Settings()


def test_arguments_precede_the_environment_the_env_file_and_prose_toml(tmp_path: Path) -> None:
    (tmp_path / ".prose").mkdir()
    (tmp_path / ".prose" / ".env").write_text("PROSE_PROVIDER=dotenv\nPROSE_GATES=wait\nPROSE_PROFILE=strict\n")
    text = 'provider = "file"\ngates = "deny"\nprofile = "default"\nshell = "/bin/sh"\n'
    found = load(tmp_path, text, {"PROSE_PROVIDER": "environment", "PROSE_GATES": "ask"}, provider="argument")
    assert (found.provider, found.gates.mode, found.profile, found.shell) == ("argument", "ask", "strict", "/bin/sh")
    assert found.state.kind == "filesystem"


def test_an_empty_variable_is_ignored(tmp_path: Path) -> None:
    assert load(tmp_path, 'provider = "file"\n', {"PROSE_PROVIDER": ""}).provider == "file"


def test_a_misspelt_variable_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".prose").mkdir()
    (tmp_path / ".prose" / ".env").write_text("PROSE_PROVDER=openai\nPROSE_PROVIDER=openai\nOTHER=1\n")
    environment = {
        **{"PROSE_BUGDET": "1 usd", "PROSE_BUDGET": "1 usd", "PROSE_GATE": ""},
        **{"PROSE_JOB": "1", "PROSE_RUN": "1", "PROSE_AT": "1", "PROSE_OF_SOMEBODY_ELSE": "1", "BUGDET": "1"},
    }
    assert load(tmp_path, "", environment).misspelt == (
        "PROSE_BUGDET is not a setting; did you mean `PROSE_BUDGET`?",
        "PROSE_PROVDER in .prose/.env is not a setting; did you mean `PROSE_PROVIDER`?",
    )
    with pytest.raises(UsageError, match="misspelt"):
        load(tmp_path, 'misspelt = ["x"]\n', {})


def test_another_file_can_be_named(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere.toml"
    other.write_text('provider = "elsewhere"\n')
    (tmp_path / "prose.toml").write_text('provider = "here"\n')
    assert settings.load(tmp_path, {}, file=other).provider == "elsewhere"


def test_the_env_file_is_in_the_state_directory_of_prose_toml(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / ".env").write_text("PROSE_PROVIDER=kept\n")
    assert load(tmp_path, 'state_dir = "kept"\n').provider == "kept"


ALL_TABLES = """
provider = "stub:big"
max_parallel = 3
autodetect = false
tool_rounds = 5

[judge]
rules = "only"
provider = "anthropic"
model = "opus"

[cassette]
name = "mine"
mode = "replay"
repeats = "reuse"
redact = ["[0-9]{16}"]
private = true
realtime = true

[permissions]
read = ["src/**"]
network = ["api.example.org"]
bash = "deny"

[providers.stub]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
key = ""
tools = false
timeout = 5

[models.stub]
default = "m1"
sonnet = "m2"
opus = { model = "m3", max_tokens = 50 }

[models.anthropic]
sonnet = "claude-old"

[agents.opencode]
command = ["opencode", "acp"]
env = { A = "b" }
enforcement = "advisory"

[models."acp:opencode"]
opus = "vendor/model"
"""


def test_all_tables_of_prose_toml_are_loaded(tmp_path: Path) -> None:
    options = load(tmp_path, ALL_TABLES).session_options(tmp_path)
    assert (options.provider, options.max_parallel, options.autodetect, options.tool_rounds) == (
        "stub:big",
        3,
        False,
        5,
    )
    assert options.judge == JudgeOptions("anthropic", "opus", "only")
    assert options.cassette == CassetteOptions("mine", "replay", "reuse", ("[0-9]{16}",), True, True)
    assert options.permissions == {"read": ("src/**",), "network": ("api.example.org",), "bash": "deny"}
    assert options.servers == {
        "stub": ModelServer(
            "openai",
            "http://127.0.0.1:1/v1",
            key="",
            model="m1",
            aliases={"sonnet": "m2", "opus": "m3"},
            options={"opus": ModelOptions("m3", 50)},
            tools=False,
            timeout=5.0,
        ),
        "anthropic": ModelServer(aliases={"sonnet": "claude-old"}),
    }
    agent = AgentCommand(("opencode", "acp"), {"A": "b"}, {"opus": "vendor/model"}, "advisory")
    assert options.agents == {"opencode": agent}


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("PROSE_CASSETTE", "mine", "cassette", "mine"),
        ("PROSE_CASSETTE_MODE", "record", "cassette_mode", "record"),
        ("PROSE_CASSETTE_PRIVATE", "yes", "cassette_private", True),
        ("PROSE_JUDGE", "anthropic:x", "judge", "anthropic:x"),
        ("PROSE_JUDGE_MODEL", "haiku", "judge_model", "haiku"),
        ("PROSE_JUDGE_RULES", "off", "judge_rules", "off"),
        ("PROSE_AUTODETECT", "0", "autodetect", False),
        ("PROSE_AUTODETECT", "TRUE", "autodetect", True),
        ("PROSE_MAX_PARALLEL", "2", "max_parallel", 2),
        ("PROSE_PROVIDER", "acp:goose", "provider", "acp:goose"),
    ],
)
def test_variables_set_their_settings(tmp_path: Path, variable: str, text: str, field: str, value: object) -> None:
    assert load(tmp_path, "", {variable: text}).by_name()[field] == value


def test_settings_have_tables_and_flat_names(tmp_path: Path) -> None:
    found = load(tmp_path, '[exec]\nmemory = 7\n[judge]\nprovider = "x"\n').changed(
        exec_home="private", judge_model="m"
    )
    assert (found.exec.memory, found.exec.home) == (7, "private")
    assert (found.judge.provider, found.judge.model) == ("x", "m")
    assert Settings().changed(**found.by_name()) == found
    assert found.by_name()["judge"] == "x"
    with pytest.raises(TypeError, match="exec_mem"):
        found.changed(exec_mem=1)


def test_variables_keep_their_names() -> None:
    own = {name for name, one in settings.all_settings().items() if one.table and name != f"{one.table}_{one.key}"}
    assert own == {"state", "gates", "judge", "budget", "unpriced", "cassette", "remote"}


@pytest.mark.parametrize(
    ("text", "seconds"), [("0 s", 0.0), ("30s", 30.0), ("1.5 min", 90.0), ("2 h", 7200.0), ("10", None), ("-1 s", None)]
)
def test_a50_the_wait_for_the_store_is_a_setting(text: str, seconds: float | None, tmp_path: Path) -> None:
    if seconds is None:
        with pytest.raises(UsageError, match="10 min"):
            load(tmp_path, f'[state]\nkind = "sqlite"\nwait = "{text}"\n')
    else:
        found = load(tmp_path, f'[state]\nkind = "sqlite"\nwait = "{text}"\n').state
        assert (found.kind, found.patience) == ("sqlite", seconds)


def test_auto_as_an_argument_overrides_the_provider_of_prose_toml(tmp_path: Path) -> None:
    found = load(tmp_path, 'provider = "human"\n', provider="auto", judge="auto")
    assert found.session_options(tmp_path).provider is None
    assert found.session_options(tmp_path).judge.provider is None


MISTAKES = [
    ('provder = "x"', "prose.toml line 1: provder: there is no such setting", "did you mean `provider`?"),
    ('[modles.x]\na = "b"', "prose.toml line 1: modles: there is no such setting", "did you mean `models`?"),
    (
        'profile = "strict"\n[modles]\n[modles.x]',
        "prose.toml line 2: modles: there is no such setting",
        "did you mean `models`?",
    ),
    ('state_dir = "a\\u0000b"', "prose.toml line 1: state_dir: a text cannot have the character U+0000", None),
    (
        '[mcp.x]\ncommand = ["a", "\\u0000"]',
        "prose.toml line 2: mcp.x.command[2]: a text cannot have the character U+0000",
        None,
    ),
    ("vvm_depth = 3", "prose.toml line 1: vvm_depth: there is no such setting", "did you mean `[vvm] depth`?"),
    ("[cassete]\n", "prose.toml line 1: cassete: there is no such setting", "did you mean `cassette`?"),
    (
        "[providers.a]\nbatch_wait = 1",
        "prose.toml line 2: providers.a.batch_wait: there is no such setting",
        "it was removed: delete this line",
    ),
    (
        "[models.a.b]\nbatch = true",
        "prose.toml line 2: models.a.b.batch: there is no such setting",
        "it was removed: delete this line",
    ),
    (
        "[exec]\nbubblewrap = true",
        "prose.toml line 2: exec.bubblewrap: there is no such setting",
        "it was removed: delete this line",
    ),
    ("\n\n[judge]\nrule = 1", "prose.toml line 4: judge.rule: there is no such setting", "did you mean `rules`?"),
    (
        '[cassette]\n\nmode = "rec"',
        "prose.toml line 3: cassette.mode: one of 'off', 'auto', 'record', 'replay', not 'rec'",
        None,
    ),
    (
        'cassette.mode = "x"',
        "prose.toml line 1: cassette.mode: one of 'off', 'auto', 'record', 'replay', not 'x'",
        None,
    ),
    ('judge = "x"', "prose.toml line 1: judge: a table [judge], not 'x'", None),
    ("provider = 3", "prose.toml line 1: provider: a text, not 3", None),
    ('provider = ""', "prose.toml line 1: provider: a text, not ''", None),
    ('autodetect = "yes"', "prose.toml line 1: autodetect: true or false, not 'yes'", None),
    ("concurrency = 0", "prose.toml line 1: concurrency: a whole number above 0, not 0", None),
    (
        "[vvm]\ndepth = 9223372036854775808",
        "prose.toml line 2: vvm.depth: a number of at most 64 bits, not 9223372036854775808",
        None,
    ),
    (
        '[programs]\nregistry = "zzz"',
        "prose.toml line 2: programs.registry: an address that begins with https:// or http://, not 'zzz'",
        None,
    ),
    ("max_parallel = true", "prose.toml line 1: max_parallel: a whole number above 0, not true", None),
    (
        '[permissions]\nreed = "deny"',
        "prose.toml line 2: permissions.reed: there is no such setting",
        "did you mean `read`?",
    ),
    (
        '[permissions]\nread = "some"',
        "prose.toml line 2: permissions.read: 'allow', 'deny', 'prompt' or a list of patterns, not 'some'",
        None,
    ),
    ("provider = 2026-01-02", "prose.toml line 1: provider: a text, not 2026-01-02", None),
    ('[permissions]\nbash = ["x"]', "prose.toml line 2: permissions.bash: 'allow', 'deny', 'prompt', not ['x']", None),
    ("[providers]\na = 3", "prose.toml line 2: providers.a: a table [providers.a], not 3", None),
    ('[providers."a b"]', "prose.toml line 1: providers.\"a b\": a name without blanks and colons, not 'a b'", None),
    ('[providers.a]\nkind = "x"', "prose.toml line 2: providers.a.kind: one of 'anthropic', 'openai', not 'x'", None),
    ("[providers.a]\ntimeout = nan", "prose.toml line 2: providers.a.timeout: a number above 0, not nan", None),
    ("[providers.a]\ntimeout = inf", "prose.toml line 2: providers.a.timeout: a number above 0, not inf", None),
    ("[providers.a]\ntimeout = -1", "prose.toml line 2: providers.a.timeout: a number above 0, not -1", None),
    ("[providers.a]\nkey_ = 1", "prose.toml line 2: providers.a.key_: there is no such setting", "did you mean `key`?"),
    (
        '[agents.o]\nenv = { a = "b" }',
        "prose.toml line 1: agents.o: `command` is missing",
        "command takes a list of texts",
    ),
    ("[agents.o]\ncommand = []", "prose.toml line 2: agents.o.command: the program and its arguments, not []", None),
    ('[agents.o]\ncommand = "x"', "prose.toml line 2: agents.o.command: a list of texts, not 'x'", None),
    (
        "[mcp.w]\ntimeout = 5",
        "prose.toml line 1: mcp.w: it takes either `command` (to start it) or `url` (to reach it)",
        None,
    ),
    (
        '[mcp.w]\nurl = "x"',
        "prose.toml line 2: mcp.w.url: an address that begins with https:// or http://, not 'x'",
        None,
    ),
    ('[mcp."a.b"]\nurl = "https://x"', "prose.toml line 1: mcp.\"a.b\": a name without dots, not 'a.b'", None),
    (
        '[models."acp:o"]\nx = "y"',
        'prose.toml line 1: models."acp:o": the name of an [agents.o] table of this file',
        None,
    ),
    ("[models.a]\nsonnet = 1", "prose.toml line 2: models.a.sonnet: the name of a model, or a table, not 1", None),
    (
        "[models.a.sonnet]\nmax_token = 1",
        "prose.toml line 2: models.a.sonnet.max_token: there is no such setting",
        "did you mean `max_tokens`?",
    ),
    (
        "[models.a.sonnet]\nmax_tokens = 0",
        "prose.toml line 2: models.a.sonnet.max_tokens: a whole number above 0, not 0",
        None,
    ),
    (
        '[agents.o]\ncommand = ["o"]\n[models."acp:o".opus]\nmodel = "y"',
        "prose.toml line 3: models.\"acp:o\".opus: the name of a model, not {'model': 'y'}",
        None,
    ),
    (
        '[providers.a]\nmodel = "x"\n[models.a]\ndefault = "y"',
        "prose.toml line 4: models.a.default: one default: [providers.a] has `model` already",
        None,
    ),
    (
        '[cassette]\nredact = ["("]',
        "prose.toml line 2: cassette.redact: regular expressions (missing ), unterminated subpattern at position 0), not '('",
        None,
    ),
    (
        f"concurrency = {'9' * 4000}",
        f"prose.toml line 1: concurrency: a number of at most 64 bits, not {'9' * 119}…",
        None,
    ),
    (
        "x ==",
        "prose.toml is not TOML: Invalid value (at line 1, column 4)",
        "docs/reference/settings.md shows every setting",
    ),
]


@pytest.mark.parametrize(("text", "message", "hint"), MISTAKES)
def test_mistakes_in_prose_toml_are_errors(tmp_path: Path, text: str, message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as refused:
        load(tmp_path, text)
    assert (str(refused.value), refused.value.hint) == (message, hint)


def test_a_prose_toml_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "prose.toml").write_bytes(b'provider = "\xff"')
    with pytest.raises(UsageError, match=r"^prose\.toml is not UTF-8 text$"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("PROSE_AUTODETECT", "perhaps", "setting autodetect (PROSE_AUTODETECT): true or false, not 'perhaps'"),
        ("PROSE_CONCURRENCY", "0", "setting concurrency (PROSE_CONCURRENCY): a whole number above 0, not '0'"),
        (
            "PROSE_CONCURRENCY",
            "9223372036854775808",
            "setting concurrency (PROSE_CONCURRENCY): a number of at most 64 bits, not '9223372036854775808'",
        ),
        (
            "PROSE_CONCURRENCY",
            "9" * 5000,
            f"setting concurrency (PROSE_CONCURRENCY): a number of at most 64 bits, not '{'9' * 119}…'",
        ),
        ("PROSE_MAX_PARALLEL", "many", "setting max_parallel (PROSE_MAX_PARALLEL): a whole number above 0, not 'many'"),
        (
            "PROSE_CASSETTE_MODE",
            "all",
            "setting cassette_mode (PROSE_CASSETTE_MODE): one of 'off', 'auto', 'record', 'replay', not 'all'",
        ),
    ],
)
def test_mistakes_in_variables_are_errors(tmp_path: Path, variable: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        load(tmp_path, "", {variable: text})
    assert str(refused.value) == message


def test_a_mistake_in_an_argument_names_no_variable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^setting gates: "):
        load(tmp_path, "", {}, gates="perhaps")


def test_a_mistake_in_the_env_file_names_it(tmp_path: Path) -> None:
    (tmp_path / ".prose").mkdir()
    (tmp_path / ".prose" / ".env").write_text("PROSE_GATES=perhaps\n")
    with pytest.raises(UsageError, match=r"setting gates \(PROSE_GATES in \.env\)"):
        load(tmp_path)


def test_surroundings_have_directories_notebook_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "work/tour.ipynb")
    monkeypatch.setenv("BOTH", "environment")
    monkeypatch.setenv("CI", "true")
    (tmp_path / ".prose").mkdir()
    (tmp_path / ".prose" / ".env").write_text("BOTH=file\nVENDOR_KEY=k\n")
    found = settings.surroundings(tmp_path, tmp_path / ".prose" / "runs" / "r", ".prose")
    assert (found.cwd, found.run_directory) == (str(tmp_path), str(tmp_path / ".prose" / "runs" / "r"))
    assert (found.notebook, found.attended) == ("work/tour.ipynb", False)
    assert (found.environment["BOTH"], found.environment["VENDOR_KEY"]) == ("environment", "k")
    monkeypatch.delenv("CI")
    assert settings.surroundings(tmp_path, None, ".prose").attended


def test_the_documented_file_has_every_key(tmp_path: Path) -> None:
    text = (DOCS / "reference" / "prose.toml").read_text()
    found = load(tmp_path, text)
    data = tomllib.loads(text)
    assert {*data, "misspelt"} == {*Settings.__struct_fields__, "models"}
    for table in {one.table for one in settings.all_settings().values()} - {""}:
        assert set(data[table]) == set(getattr(found, table).__struct_fields__)
    assert set(data["permissions"]) == set(Permissions.__struct_fields__)
    assert set(data["providers"]["gateway"]) | {"aliases", "options", "model"} == set(ModelServer.__struct_fields__)
    assert set(data["models"]["gateway"]["opus"]) == set(ModelOptions.__struct_fields__)
    assert set(data["agents"]["opencode"]) | {"aliases"} == set(AgentCommand.__struct_fields__)
    assert found.providers["gateway"].model == data["models"]["gateway"]["default"]


def test_a42_the_tools_of_sessions_are_a_setting(tmp_path: Path) -> None:
    assert load(tmp_path, "").session_options(tmp_path).tools is None
    assert load(tmp_path, "[tools]\ndefault = []\n").session_options(tmp_path).tools == ()
    assert load(tmp_path, '[tools]\ndefault = ["read"]\n').session_options(tmp_path).tools == ("read",)
    with pytest.raises(UsageError, match=r"line 2: tools\.default: a list of 'read', .*not \['reed'\]"):
        load(tmp_path, '[tools]\ndefault = ["reed"]\n')


# ---------------------------------------------------------------- damaged files

WITH_MISTAKES = """gates = "no"
provider = "human"
[tasks]
at_once = 0
kept = 7
[cassette]
redact = ["("]
[permissions]
bash = "deny"
network = 3
[providers.mine]
base_url = 1
[budget]
run = "5 bananas"
"""


def test_a19_every_wrong_setting_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        load(tmp_path, WITH_MISTAKES)
    lines = str(refused.value).splitlines()
    assert lines[0] == "6 settings are wrong:"
    found = {line.split(":")[0].strip(): line.split(": ")[1] for line in lines[1:]}
    assert found == {
        "prose.toml line 1": "gates",
        "prose.toml line 4": "tasks.at_once",
        "prose.toml line 7": "cassette.redact",
        "prose.toml line 10": "permissions.network",
        "prose.toml line 12": "providers.mine.base_url",
        "prose.toml line 14": "budget.run",
    }


def test_a19_other_settings_are_loaded_in_spite_of_wrong_ones(tmp_path: Path) -> None:
    (tmp_path / "prose.toml").write_text(WITH_MISTAKES)
    problems: list[UsageError] = []
    found = settings.load(tmp_path, {"PROSE_MAX_PARALLEL": "many", "PROSE_TOOL_ROUNDS": "3"}, problems=problems)
    assert (found.provider, found.tasks.kept, found.tool_rounds) == ("human", 7, 3)
    assert found.permissions == {"bash": "deny"}
    assert (found.gates.mode, found.tasks.at_once, found.max_parallel, found.providers) == ("auto", 32, None, {})
    assert found.budget.run is None
    assert len(problems) == 7


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("prose.toml", b"x = " + b"[" * 5000 + b"]" * 5000, "prose.toml is nested too deeply"),
        ("prose.toml", b"a" + b".a" * 5000 + b" = 1", None),
        ("prose.toml", b"[tasks]\nat_once = " + b"[" * 200 + b"]" * 200, "prose.toml line 2: tasks.at_once"),
        ("prose.toml", b"\xff", "prose.toml is not UTF-8 text"),
        ("prose.toml", b"provider = {a = 1", "prose.toml is not TOML"),
        ("prose.toml", b"concurrency = " + b"9" * 5000, "prose.toml is not TOML: a number has too many digits"),
        (".prose/.env", b"\xff\xfe", ".env cannot be read: it is not UTF-8 text"),
    ],
)
def test_a19_a_damaged_file_is_reported(tmp_path: Path, name: str, content: bytes, message: str | None) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError) as refused:
        settings.load(tmp_path, {})
    assert message is None or str(refused.value).startswith(message)
    problems: list[UsageError] = []
    assert settings.load(tmp_path, {}, problems=problems) == Settings() and problems


def test_a19_a_missing_directory_has_no_settings(tmp_path: Path) -> None:
    assert settings.load(tmp_path / "gone", {}) == Settings()
