"""Names, frames and mutability: the table of openprose.md 3.5, row by row, in both profiles."""

from __future__ import annotations

import pytest

from language.marked import PROFILES, findings, places, unmark

ROWS = {
    "let twice in one list": "let x = 1\nlet «E019»x = 2\n",
    "const twice in one list": "const x = 1\nconst «E019»x = 2\n",
    "const and let in one list": "const x = 1\nlet «E019»x = 2\n",
    "twice in one destructuring list": 'let f = session "a long enough task"\nlet { a, «E019»a } = f\n',
    "twice in a nested list": "if **the build is green**:\n  let x = 1\n  let «E019»x = 2\n",
    "nested after outer": "let x = 1\nif **the build is green**:\n  let «W136/E019»x = 2\n",
    "nested deep after outer": "let x = 1\nrepeat 2:\n  do:\n    repeat 2:\n      let «W136/E019»x = 2\n",
    "nested const after outer let": "let x = 1\nrepeat 2:\n  const «E130/E019»x = 2\n",
    "nested let after outer const": "const x = 1\nrepeat 2:\n  let «E130/E019»x = 2\n",
    "nested let after input": 'input x: "What?"\nrepeat 2:\n  let «E137/E019»x = 2\n',
    "let after input in one list": 'input x: "What?"\nlet «E019»x = 2\n',
    "sibling arms": "if **the build is green**:\n  let x = 1\nelse:\n  let «-/E019»x = 2\nlet y = x\n",
    "sibling loops": "repeat 2:\n  let x = 1\nrepeat 2:\n  let «-/E019»x = 2\n",
    "nested then further out": "repeat 2:\n  let x = 1\nlet «-/E019»x = 2\n",
    "output in one list with let after it": "output x = 1\nlet «E019»x = 2\n",
    "let in a loop body runs again": "repeat 2:\n  let x = 1\n",
    "let in a block over an outer name": "let x = 1\nblock f:\n  let x = 2\ndo f()\n",
    "the same name in two blocks": "block f:\n  let x = 2\nblock g:\n  let x = 2\n",
    "parameter over an outer name": "let x = 1\nblock f(«W141»x):\n  let y = x\n",
    "parameter over a later outer name": "block f(«W141»x):\n  let y = x\nlet x = 1\n",
    "parameter equal to a name of another block": "block f(x):\n  let y = x\nblock g(y):\n  let x = y\n",
    "let over a parameter": "block f(x):\n  let «E137»x = 1\n",
    "let over a loop variable": "for x in [1, 2]:\n  let «E137»x = 1\n",
    "assignment to a loop variable": "for x in [1, 2]:\n  «E137»x = 1\n",
    "assignment to an index": "for x, i in [1, 2]:\n  «E137»i = 1\n",
    "assignment to an as variable": "repeat 2 as i:\n  «E137»i = 1\n",
    "output over a catch variable": 'try:\n  exec "false"\ncatch as e:\n  output «E137»e = 1\n',
    "branch over a loop variable": 'for x in [1]:\n  parallel:\n    «E137»x = session "a task for someone"\n',
    "assignment to item": "let a = [1] | map:\n  «E137»item = 1\n  item\n",
    "assignment without declaration": "«W135/E135»x = 1\nlet y = x\n",
    "assignment without declaration, once": "«W135/E135»x = 1\nx = 2\n",
    "assignment after declaration": "let x = 1\nx = 2\n",
    "assignment in a nested body": "let x = 1\nrepeat 2:\n  x = x + 1\n",
    "assignment to a caller's name": "let x = 1\nblock f:\n  x = 2\ndo f()\n",
    "assignment to a name of nobody": "block f:\n  «W135/E135»x = 2\n  let y = x\ndo f()\n",
    "assignment to a later root name, in a block": "block f:\n  x = 2\nlet x = 1\ndo f()\n",
    "assignment to a const": "const x = 1\n«E130»x = 2\n",
    "assignment to a const from a nested body": "const x = 1\nrepeat 2:\n  «E130»x = 2\n",
    "assignment to a const from a block": "const x = 1\nblock f:\n  «E130»x = 2\ndo f()\n",
    "assignment to an input": 'input x: "What?"\n«E137»x = 2\n',
    "assignment to an input from a block": 'input x: "What?"\nblock f:\n  «E137»x = 2\ndo f()\n',
    "block writes a name that another block may bind": "const x = 1\nblock f:\n  x = 2\nblock g:\n  let x = 1\n  do f()\n",
    "variable like an agent": 'agent a:\n  prompt: "p"\nlet «E133»a = 1\nlet b = a\n',
    "const like an agent defined later": 'const «E133»a = 1\nagent a:\n  prompt: "p"\n',
    "input like an agent": 'agent a:\n  prompt: "p"\ninput «E133»a: "What?"\n',
    "output like an agent": 'agent a:\n  prompt: "p"\noutput «E133»a = 1\n',
    "branch like an agent": 'agent a:\n  prompt: "p"\nparallel:\n  «E133»a = exec "ls"\n',
    "assignment like an agent": 'agent a:\n  prompt: "p"\n«E133»a = 1\n',
    "loop variable like an agent": 'agent a:\n  prompt: "p"\nfor «W160/E133»a in [1]:\n  let b = a\n',
    "parameter like an agent": 'agent a:\n  prompt: "p"\nblock f(«W141/E133»a):\n  let b = a\n',
    "reduce variable like an agent": 'agent a:\n  prompt: "p"\nlet b = [1] | reduce(«W170/E133»a, x):\n  x\n',
    "catch variable like an agent": 'agent a:\n  prompt: "p"\ntry:\n  exec "ls"\ncatch as «W180/E133»a:\n  throw a\n',
    "variable like a block, an import and a gate": (
        'use "./x.prose" as x\nblock b:\n  exec "ls"\ngate g:\n  prompt: "Go on?"\nlet b = 1\nlet x = 2\nlet g = 3\n'
    ),
    "output after let": "let x = 1\noutput «W114/E114»x = x\n",
    "output after let, nested": "let x = 1\nif **the build is green**:\n  output «W114/E114»x = 2\n",
    "output after a branch": 'parallel:\n  x = session "a task for someone"\noutput «W114/E114»x = x\n',
    "output after const": "const x = 1\noutput «E130/E114»x = x\n",
    "output after input": 'input x: "What?"\noutput «E137/E114»x = x\n',
    "let in one arm, output in the other": ("if **the build is green**:\n  let x = 1\nelse:\n  output «-/E114»x = 2\n"),
    "output twice in one list": "output x = 1\noutput «E024»x = 2\n",
    "output in exclusive arms": (
        "if **the build is green**:\n  output x = 1\nelif **it is yellow at least**:\n  output «-/E024»x = 2\n"
        "else:\n  output «-/E024»x = 3\n"
    ),
    "output in options": (
        'choice **what to do next**:\n  option "a":\n    output x = 1\n  option "b":\n    output «-/E024»x = 2\n'
    ),
    "output in arms, nested": (
        "if **the build is green**:\n  if **it is also fast**:\n    output x = 1\n  else:\n    output «-/E024»x = 2\n"
        "else:\n  do:\n    output «-/E024»x = 3\n"
    ),
    "output in an arm, then outside": "if **the build is green**:\n  output x = 1\noutput «W124/E024»x = 2\n",
    "output outside, then in an arm": "output x = 1\nif **the build is green**:\n  output «W124/E024»x = 2\n",
    "output in two ifs": (
        "if **the build is green**:\n  output x = 1\nif **the build is yellow**:\n  output «W124/E024»x = 2\n"
    ),
    "output in try and catch": 'try:\n  output x = exec "ls"\ncatch:\n  output «W124/E024»x = ""\n',
    "output in two branches": ("parallel:\n  do:\n    output x = 1\n  do:\n    output «W124/E024»x = 2\n"),
    "output in arms within arms that follow": (
        "if **the build is green**:\n  output x = 1\nelse:\n  repeat 2:\n    let y = 1\n"
        "  if **it is at least yellow**:\n    output «-/E024»x = 2\n  output «W124/E024»x = 3\n"
    ),
    "same output in two blocks": "block f:\n  output x = 1\nblock g:\n  output x = 2\noutput x = 3\n",
    "branch name that exists": 'let x = 1\nparallel:\n  «W151/E019»x = session "a task for someone"\n',
    "branch name over a const": 'const x = 1\nparallel:\n  «E130/E019»x = session "a task for someone"\n',
    "branch name over an input": 'input x: "What?"\nparallel:\n  «E137/E019»x = session "a task for someone"\n',
    "branch name in exclusive arms": (
        'if **the build is green**:\n  parallel:\n    x = exec "ls"\nelse:\n  parallel:\n    «-/E019»x = exec "ls"\n'
    ),
    "branch name again": 'parallel:\n  x = exec "ls"\nparallel:\n  «W151/E019»x = exec "ls"\n',
    "let after a branch": 'parallel:\n  x = exec "ls"\nlet «-/E019»x = 1\n',
    "input twice in one list": 'input x: "What?"\ninput «E021»x: "What else?"\n',
    "input twice in siblings": (
        'if **the build is green**:\n  «-/E022»input x: "What?"\nelse:\n  «-/E022»input x: "What else?"\n'
    ),
    "input nested again": 'input x: "What?"\nrepeat 2:\n  «-/E022»input x: "What else?"\n',
    "input over a let": 'let x = 1\n«-/E022»input «E019»x: "What?"\n',
    "input nested over a const": 'const x = 1\nrepeat 2:\n  «-/E022»input «E130/E019»x: "What?"\n',
    "input after an executable statement": 'exec "ls"\n«-/E022»input x: "What?"\n',
    "input after definitions": (
        'agent a:\n  prompt: "p"\nblock f:\n  exec "ls"\ninput x: "What?"\nsession: a\n  context: x\n'
    ),
    "input in a block": 'block f:\n  «-/E022»input x: "What?"\n',
    "equal parameters": "block f(a, «E144»a):\n  let b = a\n",
    "equal loop variables": "for a, «E144»a in [1]:\n  let b = a\n",
    "equal reduce variables": "let b = [1] | reduce(a, «E144»a):\n  a\n",
    "loop variable hides a name": "let x = 1\nfor «W160»x in [1]:\n  let y = x\n",
    "index hides a name": "let i = 1\nfor x, «W160»i in [1]:\n  let y = i\n",
    "as variable hides a name": "let i = 1\nrepeat 2 as «W160»i:\n  let y = i\n",
    "loop variable hides a loop variable": "for x in [1]:\n  for «W160»x in [2]:\n    let y = x\n",
    "loop variable in sequence": "for x in [1]:\n  let y = x\nfor x in [1]:\n  let «-/E019»y = x\n",
    "item hides a name": "let item = 1\nlet a = [1] | «W170»map:\n  item\n",
    "item in item": "let a = [[1]] | map:\n  item | map:\n    item\n",
    "reduce variable hides a name": "let acc = 1\nlet a = [1] | reduce(«W170»acc, x):\n  x\n",
    "catch variable hides a name": 'let e = 1\ntry:\n  exec "ls"\ncatch as «W180»e:\n  throw e\n',
    "temporary names are gone": (
        'for x in [1]:\n  let a = x\nlet b = «E131»x\ntry:\n  exec "ls"\ncatch as e:\n  throw e\nthrow «E131»e\n'
    ),
}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("row", ROWS)
def test_rows_of_the_table(row, profile):
    source, expected = unmark(ROWS[row], profile)
    assert places(findings(source, profile)) == expected


VISIBILITY = {
    "undefined": "let y = «E131»x\n",
    "defined later": "let y = «E131»x\nlet x = 1\n",
    "own name": "let x = «E131»x\n",
    "bound in a body": "if **the build is green**:\n  let x = 1\nlet y = x\n",
    "each use is reported": "let y = «E131»x + «E131»x\n",
    "in every expression": (
        "let a = [«E131»b1, { k: «E131»b2 }, «E131»b3.c, «E131»b4[«E131»b5], not «E131»b6, «E131»b7 == 1 and «E131»b8]\n"
    ),
    "in a block only what is declared nowhere": (
        "block f(p):\n  let a = later\n  let b = other\n  let c = loopvar\n  let d = p\n  let e = «E131»nobody\n"
        "block g:\n  let other = 1\nlet later = 1\nfor loopvar in [1]:\n  do f(loopvar)\n"
    ),
    "sibling branches": (
        'parallel:\n  a = session "a task for someone"\n  b = session "another task"\n    context: «E132»a\n'
        '  do:\n    let c = 1\n  let d = «E131»c\nsession "all of them"\n  context: [a, b, c, d]\n'
    ),
    "sibling names that existed before": (
        'let a = 1\nparallel:\n  «W151/E019»a = exec "ls"\n  b = session "another task"\n    context: a\n'
    ),
    "nested parallel": (
        'parallel:\n  do:\n    parallel:\n      a = exec "ls"\n    let b = a\n  c = session "x and y"\n    context: «E132»a\n'
        "let d = [a, b, c]\n"
    ),
    "iterations are gone": (
        "parallel for x in [1]:\n  let a = x\n  let b = a\nlet c = «E131»a\nlet d = [1] | pmap:\n  let e = item\n  e\nlet f = «E131»e\n"
    ),
    "sequential bodies stay": "for x in [1]:\n  let a = x\nlet d = [1] | map:\n  let e = item\n  e\nlet f = [a, e]\n",
    "collections": (
        "for x in «E162»a:\n  let b = x\nfor y in «E162»a.b[«E131»i]:\n  let «-/E019»b = y\n"
        "for z in [«E131»a]:\n  let «-/E019»b = z\nlet c = «E170»a | map:\n  item\nlet d = «E170»a.b | map:\n  item\n"
    ),
    "no collections": (
        "for x in «E162»3:\n  let b = x\nfor y in «E162»**the files that matter**:\n  let «-/E019»b = y\n"
        "for z in «E162»null:\n  let «-/E019»b = z\nlet c = «E170»true | map:\n  item\n"
        'for w in "a\\nb":\n  let «-/E019»b = w\n'
    ),
    "counts and throws": "repeat «E131»n:\n  throw «E131»e\n",
    "conditions": 'if «E131»x == 1 or **the build is green**:\n  exec "ls"\nloop until «E131»y (max: 3):\n  exec "ls"\n',
    "later arms see earlier ones": (
        "if **the build is green**:\n  let x = 1\nelif x == 2:\n  let y = x\nelse:\n  let z = x\n"
    ),
    "arguments": 'block f(a):\n  exec "ls"\ndo f(«E131»x)\n',
    "gates bind nothing": 'gate g:\n  prompt: "Go on?"\nlet x = «E131»g\n',
    "texts": 'session "see {«-»x}"\n'.replace("{«-»x}", "«W108/E108»{x}"),
    "markers": 'if **the value «W108»{x} is right**:\n  exec "ls"\n',
    "texts everywhere": (
        'input i: "about «W108/E108»{x}?"\nthrow "so «W108/E108»{x}"\nlet a = "t «W108/E108»{x}"\nlet b = ["«W108/E108»{x}"]\n'
        'gate g:\n  prompt: "p «W108/E108»{x}"\n  on_reject: throw "t «W108/E108»{x}"\n'
    ),
    "no interpolation there": (
        'choice **what to do next**:\n  option "{x}":\n    exec "ls"\nagent a:\n  skills: ["«W007»{x}"]\n'.replace(
            '"«W007»{x}"', '«W007»"{x}"'
        )
    ),
    "path steps": 'let a = ["x"]\nsession "«W108/E108»{b[0].c} {a[0]} {a[«W108/E108»k]}"\n',
    "agent prompts only what is declared nowhere": (
        'agent a:\n  prompt: "about {topic} and «W108/E108»{nothing}"\n  context: [topic, «E132»nothing]\n'
        "let topic = 1\nblock f(inner):\n  session: a\n"
    ),
    "soft export": (
        'block login():\n  output key = session "Obtain a key"\ndo login()\nsession "with «-/E108»{key}"\n'
        "  context: { «-/E132»key }\n"
    ),
    "soft export before the call": 'let x = «E131»key\nblock login():\n  output key = exec "id"\ndo login()\n',
    "no soft export of a bound call": (
        'block login():\n  output key = exec "id"\nlet a = do login()\nlet x = «E131»key\n'
    ),
    "soft export of named branches": (
        'block both():\n  parallel:\n    a = exec "ls"\n    b = exec "ls"\ndo both()\nlet x = [«-/E131»a, «-/E131»b]\n'
    ),
    "no soft export of a plain let": 'block f():\n  let a = exec "ls"\ndo f()\nlet x = «E131»a\n',
    "soft export is hidden by the table": ('block f():\n  output a = exec "ls"\nlet a = 1\ndo f()\nlet b = a\n'),
    "soft export is no declaration": 'block f():\n  output a = exec "ls"\ndo f()\nlet a = 1\n',
    "soft export assigned": 'block f():\n  output a = exec "ls"\ndo f()\n«-/E135»a = 1\n',
    "soft export in a branch": (
        'block f():\n  output a = exec "ls"\nparallel:\n  do f()\n  b = session "use «W108/E108»{a}"\nlet c = «-/E131»a\n'
    ),
    "soft export in an iteration": (
        'block f():\n  output a = exec "ls"\nparallel for x in [1]:\n  do f()\n  let b = «-/E131»a\nlet c = «E131»a\n'
    ),
    "a misspelt block exports what the right one would": (
        'block login():\n  output key = exec "id"\ndo «E140»logn()\nlet a = «-/E131»key\n'
    ),
}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", VISIBILITY)
def test_what_a_read_finds(case, profile):
    source, expected = unmark(VISIBILITY[case], profile)
    assert places(findings(source, profile)) == expected


EXEC_VALUES = {
    "let": 'let r = exec "ls"\nlet x = r.«E138»exit_code\n',
    "const": 'const r = exec "ls"\nlet x = r[«E138»0]\n',
    "output": 'output r = exec "ls"\nlet x = r.«E138»exit_code\n',
    "assignment": 'let r = 1\nr = exec "ls"\nlet x = r.«E138»exit_code\n',
    "branch": 'parallel:\n  r = exec "ls"\nlet x = r.«E138»exit_code\n',
    "arrow": 'let r = session "one task" -> exec "ls"\nlet x = r.«E138»exit_code\n',
    "in a text": 'let r = exec "ls"\nsession "code «E138»{r.exit_code}"\n',
    "as a collection": 'let r = exec "ls"\nfor x in r.«E138»lines:\n  let y = x\n',
    "in context": 'let r = exec "ls"\nsession "look at it"\n  context: r.«E138»stderr\n',
    "promoted": 'let r = exec "ls"\noutput «W114/E114»r = r\nlet x = r.«E138»exit_code\n',
    "in a nested body": 'let r = exec "ls"\nrepeat 2:\n  let x = r.«E138»exit_code\n',
    "reassigned": 'let r = exec "ls"\nr = session "make it an object"\nlet x = r.field\n',
    "copied": 'let r = exec "ls"\nlet s = r\nlet x = s.field\n',
    "a branch name is a copy": 'let r = exec "ls"\nfor r2 in [r]:\n  let x = r2.field\n',
    "perhaps reassigned": (
        'let r = exec "ls"\nif **the build is green**:\n  r = session "make it an object"\nlet x = r.field\n'
    ),
    "exec in all arms": (
        'if **the build is green**:\n  let r = exec "ls"\nelse:\n  let «-/E019»r = exec "ls -l"\nlet x = r.«E138»field\n'
    ),
    "exec in one arm": (
        'if **the build is green**:\n  let r = session "a task for someone"\nelse:\n  let «-/E019»r = exec "ls"\n'
        "let x = r.field\n"
    ),
    "exec in a loop over an object": (
        'let r = session "a task for someone"\nrepeat 2:\n  do:\n    r = exec "ls"\n    let y = r.«E138»field\nlet x = r.field\n'
    ),
    "exec again in an arm": (
        'let r = exec "ls"\nif **the build is green**:\n  r = 1\n  r = exec "ls -l"\nlet x = r.«E138»field\n'
    ),
    "written by a block": 'let r = exec "ls"\nblock f:\n  r = { field: 1 }\ndo f()\nlet x = r.field\n',
    "in a block": 'block f:\n  let r = exec "ls"\n  let x = r.«E138»field\n',
    "of the caller": 'let r = exec "ls"\nblock f:\n  let x = r.field\ndo f()\n',
    "parameter of the same name": 'let r = exec "ls"\nblock f(«W141»r):\n  let x = r.field\n',
}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", EXEC_VALUES)
def test_members_of_exec_values(case, profile):
    source, expected = unmark(EXEC_VALUES[case], profile)
    assert places(findings(source, profile)) == expected
