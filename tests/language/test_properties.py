"""Properties of agents, spawns, exec and gates: every code they can bring (openprose.md 4.2-4.5, 5.2, 5.8, 9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from language.marked import PROFILES, findings, places, unmark
from prose_kernel.language.openprose.durations import is_duration_long, parse_duration
from prose_kernel.language.openprose.names import Known

LONG = "x" * 10_001

AGENTS = {
    "all fine": (
        'import_skills\nagent a:\n  model: opus\n  prompt: "You check"\n  persist: project\n  skills: ["web"]\n'
        '  permissions:\n    read: ["**/*.md", "docs/**"]\n    write: []\n    execute: deny\n    bash: prompt\n    network: allow\n'
    ).replace("import_skills\n", 'use "./web.prose"\n'),
    "quoted words": 'agent a:\n  model: "haiku"\n  persist: "memories/"\n',
    "model": 'agent a:\n  model: «E008»gpt-4\nagent b:\n  model: «E008»"claude"\n',
    "repeated": "agent a:\n  model: opus\n  «E009»model: haiku\n",
    "unknown": 'agent a:\n  prompt: "p"\n  «W005»temperature: 1\n',
    "timeout is the session's": 'agent a:\n  prompt: "p"\n  «W005»timeout: "5m"\n',
    "empty prompt": 'agent a:\n  prompt: «W004»""\nagent b:\n  prompt: «W004»"  "\n',
    "long prompt": f'agent a:\n  prompt: «W003»"{LONG}"\n',
    "skills": 'agent a:\n  skills: «E013»web\nagent b:\n  skills: [«E014»web, «W007»"web"]\nagent c:\n  skills: «W010»[]\n',
    "permission types": 'agent a:\n  permissions:\n    «W008»filesystem: ["x"]\n    «W008»database: read\n',
    "permission words": "agent a:\n  permissions:\n    bash: «W009»ask\n    network: «W009»sometimes\n",
    "patterns": 'let url = "u"\nagent a:\n  permissions:\n    read: [«-/E016»url, «E016»3, "x"]\n    network: [«-/E016»url]\n',
    "undefined pattern": "agent a:\n  permissions:\n    read: [«E131/E016»url]\n",
    "not a block": "agent a:\n  permissions: «E015»all\n",
    "persist": 'agent a:\n  persist: «E121»forever\nagent b:\n  persist: «E121»3\nagent c:\n  persist: «E121»""\nagent d:\n  persist: user\n',
    "persist false": "agent a:\n  persist: «W121»false\n",
    "no properties": "agent «W121»a:\n",
    "retry": "agent a:\n  «W122»retry: 3\n  «W122»backoff: linear\n",
    "twice": 'agent a:\n  prompt: "p"\nagent «E006»a:\n  prompt: "q"\n',
    "resume": 'agent a:\n  prompt: "p"\nresume: «E017»a\n',
    "resume of something odd": "agent a:\n  persist: «E121»forever\nresume: a\n",
    "resume without memory": "agent a:\n  persist: false\nresume: «E017»a\n".replace("false", "«W121»false"),
    "resume first": "agent a:\n  persist: true\nresume: «W119»a\nsession: a\nresume: a\n",
    "resume first of long-lived memory": "agent a:\n  persist: project\nresume: a\n",
    "resume in a block": "agent a:\n  persist: true\nblock f:\n  resume: a\nsession: a\ndo f()\n",
    "resume in a block, never started": "agent a:\n  persist: true\nblock f:\n  resume: «W119»a\ndo f()\n",
    "undefined": "session: «E007»a\nresume: «E007»b\nsession label: «E007»c\n",
    "defined later": 'session: a\nagent a:\n  prompt: "p"\n',
}

SESSIONS = {
    "empty": 'session «W001»""\nsession «W002»"  "\n',
    "empty prompt property": 'session "title"\n  prompt: «W001»""\nsession "title"\n  prompt: «W002»" "\n',
    "long": f'session «W003»"{LONG}"\n',
    "fine": 'session "a"\n  model: opus\n  prompt: "b"\n  context: []\n  retry: 3\n  backoff: "linear"\n',
    "strict properties": 'session "a"\n  «-/W005»timeout: "90s"\n  «-/W005»permissions:\n    bash: deny\n',
    "bare timeout": 'session "a"\n  «-/W005»timeout: 120s\n',
    "bad timeout": 'session "a"\n  «-/W005»timeout: «E051/-»"soon"\n',
    "agent properties": 'session "a"\n  «W005»skills: ["x"]\n  «W005»persist: true\n',
    "unknown": 'session "a"\n  «W005»early_exit: **it looks done already**\n',
    "retry": (
        'session "a"\n  retry: «E181»0\nsession "a"\n  retry: «E181»-1\nsession "a"\n  retry: «E182»1.5\n'
        'session "a"\n  retry: «W182»11\nsession "a"\n  retry: «E182»often\n'
    ),
    "backoff": 'session "a"\n  retry: 2\n  backoff: «E183»quadratic\nsession "b"\n  «W183»backoff: linear\n',
    "repeated": 'session "a"\n  retry: 2\n  «E009»retry: 3\n',
    "resume": 'agent a:\n  persist: user\nresume: a\n  prompt: «W001»""\n  retry: «E181»0\n',
}

CONTEXTS = {
    "forms": (
        'let x = 1\nlet y = { f: 1 }\nsession "a"\n  context: x\nsession "a"\n  context: [x, y.f, y["f"]]\n'
        'session "a"\n  context: { x, y, k: 3 }\nsession "a"\n  context: y.f\nsession "a"\n  context: []\n'
    ),
    "text": 'session "a"\n  context: "some text"\n',
    "block": 'let x = 1\nsession "a"\n  context:\n    file: x\n    file: «E132»y\n',
    "undefined": 'session "a"\n  context: «E132»x\nsession "a"\n  context: [«E132»x, «E132»y.z]\nsession "a"\n  context: { «E132»x, k: «E132»y }\n',
    "no references": (
        'session "a"\n  context: «E134»3\nsession "a"\n  context: «E134»true\nsession "a"\n  context: «E134»null\n'
        'session "a"\n  context: «E134»**what matters here**\n'
    ),
    "elements": 'let x = 1\nsession "a"\n  context: [x, «E134»"text", «E134»3, «E134»[x]]\n',
    "agent": (
        'agent a:\n  persist: project\nagent b:\n  prompt: "p"\nsession "x"\n  context: «W133/E132»a\n'
        'session "x"\n  context: [«W133/E132»a, «E132»b]\nsession "x"\n  context: { «E132»b }\n'
    ),
}

EXECS = {
    "fine": 'exec "ls"\n  timeout: "90s"\n  on-fail: continue\n  cwd: "src"\nexec "ls"\n  timeout: 2m\n  on_fail: "ignore"\n',
    "empty": 'exec «E050»""\nlet x = exec «E050»"  "\n',
    "timeout": (
        'exec "ls"\n  timeout: «E051»30\nexec "ls"\n  timeout: «E051»"1 hour"\nexec "ls"\n  timeout: «E051»"2d"\n'
        'exec "ls"\n  timeout: «E051»"1h30m"\nexec "ls"\n  timeout: «E051»"0s"\n'
    ),
    "long timeout": 'exec "ls"\n  timeout: "10m"\nexec "ls"\n  timeout: «W050»"11m"\nexec "ls"\n  timeout: «W050»1h\n',
    "on-fail": 'exec "ls"\n  on-fail: «E052»"retry"\nexec "ls"\n  on-fail: «E052»3\n',
    "other": 'exec "ls"\n  «W005»retry: 3\n  «W005»model: opus\n  «W005»context: x\n',
    "repeated": 'exec "ls"\n  cwd: "a"\n  «E009»cwd: "b"\n',
    "insertion": 'let x = 1\nexec "ls «W051»{x} {x}"\n',
    "undefined": 'exec "ls «E053»{x}"\n  cwd: "«E053»{y}"\n',
    "undefined beside a name": 'let x = 1\nexec "ls «E053»{y} «W051»{x}"\n',
    "shell": 'exec "echo $HOME {} {1..3} ${HOME:-/tmp} {{.Names}} \\{x\\}"\n',
    "shell braces": 'exec "echo $«E053»{HOME} $«E053»{arr[0]}"\nexec "awk \'«E053»{print}\' f"\n',
    "dollar": 'let x = 1\nexec "echo $«W051»{x}"\n',
    "in a block": 'block f(p):\n  exec "ls «W051»{p}"\n  exec "ls «W051»{later}"\n  exec "ls «E053»{nobody}"\nlet later = 1\ndo f(1)\n',
}

GATES = {
    "fine": (
        'gate g:\n  prompt: "Go on?"\n  allow: ["user"]\n  timeout: "2h30m"\n  on_reject: throw "no"\n'
        'gate h:\n  prompt: "Go on?"\n  timeout: 1d\n  on-reject: session "Clean up now"\n'
        'gate i:\n  prompt: "Go on?"\n  on_reject: retry\ngate j:\n  prompt: "Go on?"\n  on_reject: continue\n'
    ),
    "no prompt": 'gate «E196»g:\n  timeout: "5m"\n',
    "marker": "gate g:\n  prompt: «E196»**ask nicely**\n",
    "blank": 'gate g:\n  prompt: «W004»" "\n',
    "timeout": 'gate g:\n  prompt: "p"\n  timeout: «E197»30\ngate h:\n  prompt: "p"\n  timeout: «E197»"1 hour"\n',
    "allow": (
        'gate g:\n  prompt: "p"\n  allow: «E198»"user"\ngate h:\n  prompt: "p"\n  allow: [«E198»3]\n'
        'gate i:\n  prompt: "p"\n  allow: «W198»[]\ngate j:\n  prompt: "p"\n  allow: ["user", «W198»"ops"]\n'
    ),
    "unknown": 'gate g:\n  prompt: "p"\n  «W005»model: opus\n',
    "repeated": 'gate g:\n  prompt: "p"\n  «E009»prompt: "q"\n',
    "twice": 'gate g:\n  prompt: "p"\nif **the build is green**:\n  gate «W196»g:\n    prompt: "p"\n',
}


CASES = [
    pytest.param(text, id=f"{table}: {name}")
    for table, cases in [
        ("agent", AGENTS),
        ("session", SESSIONS),
        ("context", CONTEXTS),
        ("exec", EXECS),
        ("gate", GATES),
    ]
    for name, text in cases.items()
]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("text", CASES)
def test_properties(text, profile):
    source, expected = unmark(text, profile)
    assert places(findings(source, profile)) == expected


def test_skills_of_earlier_cells_are_known():
    text = 'agent a:\n  skills: ["web", "tidy", "other"]\n'
    known = Known(skills=frozenset({"web"}), programs={"tidy": None})
    assert places(findings(text, known=known, cell=True)) == [("W007", 2, 27)]


DURATIONS = [
    ("90s", 90.0),
    ("1.5h", 5400.0),
    ("250ms", 0.25),
    ("0.1s", 0.1),
    ("2m", 120.0),
    ("", None),
    ("0s", None),
    ("-1s", None),
    ("90", None),
    ("90 s", None),
    (" 90s", None),
    ("1d", None),
    ("1h30m", None),
    ("1 hour", None),
    (".5s", None),
    ("5.s", None),
    ("٣s", None),
    ("1S", None),
    ("9" * 500 + "s", None),
]


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h30m", 9000.0),
        ("1d", 86400.0),
        ("1d12h", 129600.0),
        ("30m", 1800.0),
        ("1.5d", 129600.0),
        ("0m0s", None),
        ("2h 30m", None),
    ],
)
def test_durations_of_gates(text, seconds):
    assert parse_duration(text, gate=True) == seconds


@given(st.text(alphabet="0123456789.msh d", max_size=12), st.booleans())
def test_a_duration_is_positive_or_none(text, gate):
    seconds = parse_duration(text, gate)
    assert seconds is None or seconds > 0
    if seconds is not None and not gate:
        assert parse_duration(text, gate=True) == seconds
        assert is_duration_long(text) == (seconds > 600)
