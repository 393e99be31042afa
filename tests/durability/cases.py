"""Programs that are killed at every record of their journals. `$C/NAME` counts how often a command has run."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any


@dataclass(frozen=True)
class Case:
    """One program: a file, or the cells of a notebook, each with its language. `former` is the program of an earlier
    run whose answers are kept."""

    name: str
    cells: tuple[tuple[str, str], ...]
    notebook: bool = False
    script: dict[str, Any] | None = None
    answers: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    supplied: dict[str, str] = field(default_factory=dict)
    decisions: dict[str, bool] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    former: str = ""

    @property
    def suffix(self) -> str:
        return "vvm" if self.cells[0][0] == "vvm" else "prose"


CASES: dict[str, Case] = {}


def prose(name: str, text: str, **more: Any) -> None:
    CASES[name] = Case(name, (("openprose", dedent(text).lstrip()),), **more)


def vvm(name: str, text: str, **more: Any) -> None:
    more["settings"] = {"vvm_state": "filesystem", **more.get("settings", {})}
    CASES[name] = Case(name, (("vvm", dedent(text).lstrip()),), **more)


def cells(name: str, *texts: tuple[str, str], **more: Any) -> None:
    CASES[name] = Case(name, tuple((language, dedent(text).lstrip()) for language, text in texts), True, **more)


# ---------------------------------------------------------------- OpenProse

prose(
    "sequence",
    """
    let a = exec "echo a >> $C/a; echo one"
    let b = exec "echo b >> $C/b; echo {a} two"
    exec "echo c >> $C/c"
    output said = b
    """,
)
prose(
    "parallel",
    """
    let all = parallel:
      a = exec "echo a >> $C/a; echo say a # after: c"
      b = exec "echo b >> $C/b; echo say b # after: a"
      c = exec "echo c >> $C/c; echo say c"
    output said = all
    """,
)
prose(
    "one-step",  # the command ends while the other branch computes without a yield point
    """
    let xs = [1, 2, 3, 4, 5, 6, 7, 8]
    repeat 12:
      xs = xs + xs
    parallel:
      a = exec "echo a >> $C/a; echo one"
      do:
        let text = "{xs}{xs}{xs}{xs}"
        exec "echo b >> $C/b; echo two"
    output said = a
    """,
)
prose(
    "first",
    """
    let won = parallel ("first"):
      slow = exec "echo s >> $C/slow; sleep 60"
      quick = exec "echo q >> $C/quick; echo quick"
    output said = won
    exec "echo t >> $C/then"
    """,
)
prose(
    "any",
    """
    let won = parallel ("any", count: 2):
      a = exec "echo a >> $C/a; echo say a"
      b = exec "echo b >> $C/b; sleep 60"
      c = exec "echo c >> $C/c; echo say c # after: a"
    output said = won
    """,
)
prose(
    "retry",
    """
    let a = session "ask a"
      retry: 3
      backoff: "none"
    exec "echo a >> $C/a"
    output said = a
    """,
    script={"sessions": {"ask a": [{"error": "busy"}, {"error": "busy"}, "here it is"]}},
)
prose(
    "backoff",
    """
    parallel:
      a = session "ask a"
        retry: 2
        backoff: "linear"
      b = exec "echo b >> $C/b; echo b"
    output said = a
    """,
    script={"sessions": {"ask a": [{"error": "busy"}, "here it is"]}},
)
prose(
    "recursion",
    """
    block down(n):
      let r = exec "echo {n} >> $C/down; echo level {n}"
      if n > 0:
        do down(n - 1)
      return r
    let top = do down(3)
    output said = top
    """,
)
prose(
    "imports",
    """
    use "./lib/outer.prose"
    let r = outer(name: "Ada")
    let s = outer(name: "Grace")
    output said = r.said
    output again = s.said
    """,
    files={
        "lib/outer.prose": (
            'use "./inner.prose"\ninput name: "who"\nlet i = inner(name: "{name}")\n'
            'exec "echo o >> $C/outer"\noutput said = i.greeting\n'
        ),
        "lib/inner.prose": (
            'input name: "who"\nlet g = exec "echo i >> $C/inner; echo hello {name}"\noutput greeting = g\n'
        ),
    },
)
for action, gate in {
    "throw": 'try:\n  gate g:\n    prompt: "go on?"\n    on_reject: throw "refused"\ncatch as err:\n  let e = err.message\n',
    "continue": 'gate g:\n  prompt: "go on?"\n  on_reject: continue\n',
    "retry": 'gate g:\n  prompt: "go on?"\n  on_reject: retry\n',
    "session": 'gate g:\n  prompt: "go on?"\n  on_reject: session "say sorry"\n',
}.items():
    prose(
        f"gate-{action}",
        f'exec "echo b >> $C/before"\n{gate}exec "echo a >> $C/after"\noutput x = 1\n',
        answers={"go on?": ["n", "y"] if action == "retry" else ["n"]},
        script={"sessions": {"say sorry": "sorry"}},
    )
prose(
    "gates-in-parallel",
    """
    parallel for n in [1, 2]:
      gate ok:
        prompt: "go on with {n}?"
      exec "echo {n} >> $C/g; echo {n}"
    output done = 1
    """,
    decisions={"ok": True},
)
prose(
    "memory",
    """
    agent captain:
      prompt: "You lead"
      persist: true
    let a = session: captain
      prompt: "plan it"
    exec "echo a >> $C/a"
    let b = resume: captain
      prompt: "go on"
    output said = b
    """,
    script={"sessions": {"plan it": "first north", "go on": "then south"}},
)
prose(
    "project-memory",
    """
    agent captain:
      prompt: "You lead"
      persist: project
    let a = session: captain
      prompt: "plan it"
    let b = session: captain
      prompt: "go on"
    output said = b
    """,
    script={"sessions": {"plan it": "first north", "go on": "then south"}},
)
prose(
    "judged-loop",
    """
    let n = 0
    loop until **the draft is good enough** (max: 5):
      n = n + 1
      exec "echo {n} >> $C/pass"
    output passes = n
    """,
    script={"judge": {"the draft is good": ["no", "no", "yes"]}},
)
prose(
    "judged-choice",
    """
    choice **which way**:
      option "left":
        exec "echo l >> $C/left"
      option "right":
        exec "echo r >> $C/right"
    if **it went well**:
      exec "echo w >> $C/well"
    output x = 1
    """,
    script={"judge": {"which way": "right", "it went well": "yes"}},
)
prose(
    "finally",
    """
    let log = []
    try:
      parallel:
        do:
          try:
            exec "echo s >> $C/slow; sleep 60"
          finally:
            log = log + "ended"
            exec "echo n >> $C/never"
        b = exec "echo b >> $C/bad; exit 3"
    catch as err:
      log = log + "{err.message}"
      exec "echo c >> $C/caught"
    finally:
      exec "echo f >> $C/finally"
    output said = log
    """,
)
prose(
    "pipelines",
    """
    let doubled = [1, 2, 3] | map:
      exec "echo {item} >> $C/map; echo {item}{item}"
    let some = doubled | pmap:
      exec "echo {item} >> $C/pmap; echo {item}!"
    let sum = some | reduce(all, one):
      exec "echo r >> $C/reduce; printf %s {all}{one}"
    output said = sum
    """,
)
prose(
    "accumulators",
    """
    let log = []
    parallel:
      do:
        exec "echo a >> $C/a; echo say a # after: b"
        log = log + "a"
      do:
        exec "echo b >> $C/b; echo say b # after: c"
        log = log + "b"
      do:
        exec "echo c >> $C/c; echo say c"
        log = log + "c"
    output said = log
    """,
)
prose(
    "inputs",
    """
    input name: "Your name?"
    input given: "Given before"
    let a = exec "echo a >> $C/a; echo hello {name}"
    if **{a} is friendly**:
      input more: "Anything else?"
      exec "echo {more} >> $C/more"
    output said = a
    """,
    answers={"Your name?": ["Ada"], "Anything else?": ["no"]},
    supplied={"given": "x"},
    script={"judge": {"friendly": "yes"}},
)
prose(
    "throw-caught",
    """
    try:
      exec "echo a >> $C/a"
      throw "no"
    catch as err:
      exec "echo b >> $C/b; echo {err.message}"
    output x = 1
    """,
)
for failing in ("throw", "continue", "ignore"):
    prose(
        f"exec-{failing}",
        f"""
        try:
          let a = exec "echo a >> $C/a; echo said; exit 3"
            on-fail: "{failing}"
          exec "echo b >> $C/b"
        catch as err:
          exec "echo c >> $C/c; echo {{err.exit_code}}"
        output x = 1
        """,
    )
prose(
    "directories",
    """
    exec "mkdir -p one/two; cd one; echo a >> $C/a"
    let here = exec "echo b >> $C/b; basename $PWD"
    exec "cd two"
    let there = exec "basename $PWD"
      cwd: ".."
    let last = exec "basename $PWD"
    output said = [here, there, last]
    """,
)
prose(
    "nested-forks",
    """
    let all = parallel for x in [1, 2]:
      parallel:
        a = exec "echo {x} >> $C/a; echo say a{x}"
        b = [1, 2] | pmap:
          exec "echo {x} >> $C/b; echo {x}{item}"
      exec "echo {x} >> $C/c"
    output said = all
    """,
)
prose(
    "sessions",
    """
    let a = session "write a"
    let b = session "write b"
      context: a
    let all = parallel:
      c = session "write c"
        context: { a, b }
      d = session "write d"
    output said = all
    """,
    script={"sessions": {"write a": "text a", "write b": "text b", "write c": "text c", "write d": "text d"}},
)
prose(
    "session-fails",
    """
    try:
      session "ask"
    catch as err:
      exec "echo c >> $C/caught"
    output x = 1
    """,
    script={"sessions": {"ask": {"error": "no luck", "retryable": False}}},
)

# ---------------------------------------------------------------- VVM

vvm(
    "vvm-agents",
    """
    agent a(model="m")
    x = @a `say one`(())
    y = @a `say two`(x)
    export pack(x, y)
    """,
    script={"sessions": {"say one": "1", "say two": "2"}},
)
vvm(
    "vvm-pmap",
    """
    agent a(model="m")
    def study(angle):
      first = @a `look at {angle}`(())
      return @a `sum up {angle}`(first)
    found = pmap(["x", "y", "z"], study)
    whole = @a `join`(found)
    export pack(found, whole)
    """,
    script={"sessions": {"look at*": "seen", "sum up*": "summed", "join": "all"}},
)
vvm(
    "vvm-retry",
    """
    agent a(model="m")
    x = @a `ask`((), retry=2)
    y = @a `never`(())
    export pack(x, y)
    """,
    script={"sessions": {"ask": [{"error": "busy"}, "here"], "never": {"error": "no", "retryable": False}}},
)
vvm(
    "vvm-modules",
    """
    from "./lib/desk.vvm" import investigate
    a = investigate("fog")
    b = investigate("rain")
    export pack(a, b)
    """,
    files={"lib/desk.vvm": 'agent d(model="m")\ndef investigate(t):\n  return @d `find {t}`(())\nexport investigate\n'},
    script={"sessions": {"find fog": "grey", "find rain": "wet"}},
)
vvm(
    "vvm-memory",
    """
    agent barista(model="m", memory={scope: "project", key: "guest"})
    monday = @barista `a flat white`(())
    tuesday = @barista `the usual`(())
    export pack(monday, tuesday)
    """,
    script={
        "sessions": {
            "a flat white": 'Coming.\n```vvm-memory\n{"add": ["likes a flat white"]}\n```\n',
            "the usual": "A flat white.",
        }
    },
)
vvm(
    "vvm-criteria",
    """
    agent a(model="m")
    draft = @a `draft`(())
    n = 0
    while ?`is too short`(draft):
      n = n + 1
      draft = @a `longer {n}`(draft)
    export pack(draft, n)
    """,
    script={"sessions": {"draft": "d", "longer*": "dd"}, "judge": {"too short": ["yes", "yes", "no"]}},
)
vvm(
    "vvm-answer-files",
    """
    agent a(model="m")
    x = @a `say one`(())
    y = @a `say two`(x)
    export pack(x, y)
    """,
    script={"sessions": {"say one": "the first", "say two": "the second"}},
    settings={"vvm_state": "filesystem"},
)

# ---------------------------------------------------------------- answers of an earlier run

KEEPS = """
let a = exec "echo a >> $C/a; echo one"
let s = session "say first"
  context: a
parallel:
  left = exec "echo left >> $C/left; echo {s}"
    reads: []
  right = session "say WORD {s}"
if **{right} is a word**:
  let pure = exec "echo pure >> $C/pure; echo 3"
    reads: ["seen.txt"]
    writes: ["made.txt"]
gate release:
  prompt: "Publish?"
exec "echo late >> $C/late"
output said = [left, right]
"""
for name, word in (("gate-kept", "former"), ("gate-kept-all", "second")):
    prose(
        name,
        KEEPS.replace("WORD", "second"),
        former=KEEPS.replace("WORD", word),
        script={"sessions": {"say first": "1", "say second": "2", "say former": "3"}, "judge": {"word": "yes"}},
        decisions={"release": True},
        files={"seen.txt": "x"},
    )
KEPT_VVM = """
agent a(model="m")
x = @a `say one`(())
y = @a `say WORD`(x)
z = @a `say last`([x, y][1])
export pack(x, y, z)
"""
vvm(
    "vvm-kept",
    KEPT_VVM.replace("WORD", "two"),
    former=KEPT_VVM.replace("WORD", "former"),
    script={"sessions": {"say one": "1", "say two": "2", "say former": "3", "say last": "4"}},
)

# ---------------------------------------------------------------- notebooks

cells(
    "notebook",
    ("openprose", 'let a = exec "echo a >> $C/a; echo one"\n'),
    ("openprose", "mkdir = 1\n" if False else 'exec "mkdir sub; cd sub; echo b >> $C/b"\n'),
    ("openprose", 'let b = exec "basename $PWD"\noutput said = [a, b]\n'),
)
cells(
    "two-languages",
    (
        "openprose",
        'block greet(name):\n  let g = exec "echo g >> $C/greet; echo hello {name}"\n  return g\nlet n = 20\n',
    ),
    ("vvm", 'agent a(model="m")\nx = @a `say {n}`(())\n'),
    ("openprose", 'let m = n + 1\nexec "echo m >> $C/m"\n'),
    ("vvm", 'y = greet("Ada")\nexport pack(x, y, m)\n'),
    script={"sessions": {"say 20": "twenty"}},
)
cells(
    "failing-cells",
    ("openprose", 'let a = exec "echo a >> $C/a; echo one"\n'),
    ("openprose", 'exec "echo f >> $C/fails; exit 3"\n'),
    ("openprose", 'throw "no"\n'),
    ("openprose", 'output b = exec "echo b >> $C/b; echo {a}"\n'),
)

# ---------------------------------------------------------------- not for the matrix

STUBBORN = """
if test -e $C/alive; then
  if grep -qs 'State:.[^ZX]' /proc/$(cat $C/alive)/status; then echo alive; else echo gone; fi
else
  trap '' TERM; echo $$ > $C/new; mv $C/new $C/alive; while :; do sleep 0.05; done
fi
"""
MATRIX = tuple(CASES)
prose(
    "held",
    """
    exec "echo a >> $C/a"
    output said = exec "echo h >> $C/held; until test -e $C/release; do sleep 0.02; done; echo released"
    """,
)
prose(
    "stubborn",
    f'''
    output said = exec """{" ".join(STUBBORN.split())}"""
    ''',
)
