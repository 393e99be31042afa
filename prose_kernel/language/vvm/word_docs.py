# ruff: noqa: E501 - one line a word reads best
"""Short documentation of every word of VVM, each with an example: what inspection shows and completion offers."""

from __future__ import annotations

from prose_kernel.language.words import Entry

AGENT, CALL, PERMISSIONS, MEMORY, CONSTRAIN = "agent", "agent call", "permissions", "memory", "constrain"
"""What a key can belong to."""

KEYWORDS: dict[str, Entry] = {
    "import": Entry(
        "Register a skill that agents may use; it creates no variable.",
        'import "web-search" from "github:example/skills"\n\nagent searcher(skills=["web-search"])',
    ),
    "from": Entry(
        "Import one name, or one agent with `@`, from another module.",
        'from "./team.vvm" import summarize\nfrom "./team.vvm" import @writer as author',
    ),
    "as": Entry(
        "Give an import, a caught error or a chosen label its name here.", 'from "./team.vvm" import @writer as author'
    ),
    "export": Entry("Make a name part of the result of the program, and importable.", "answer = 42\nexport answer"),
    "agent": Entry(
        "Declare an agent: its model, instructions, skills, permissions and memory. Nothing starts yet.",
        'agent writer(model="sonnet", prompt="You write short, plain sentences.")\n\ndraft = @writer `Write about {}.`("autumn")',
    ),
    "def": Entry("Define a function. Its parameters are plain names.", "def double(n):\n  return n + n"),
    "return": Entry("Leave a function with a value; without one it is `()`.", "def first(items):\n  return items[0]"),
    "match": Entry(
        "Run the first case that fits a value. Error values are handled so.",
        'agent writer()\n\ndraft = @writer `Write a haiku.`()\nmatch draft:\n  case error(kind="timeout"):\n    draft = "too slow"\n  case error(e):\n    draft = e.error.message\n  case ?`it mentions frogs`:\n    pass\n  case _:\n    pass',
    ),
    "case": Entry(
        'One case of `match`: `error(_)`, `error(name)`, `error(kind="…")`, a criterion for the judge, or `_`.',
        'answer = "no, thank you"\nmatch answer:\n  case ?`polite refusal`:\n    tone = "friendly"\n  case _:\n    tone = "plain"\nexport tone',
    ),
    "choose": Entry(
        "Let the judge pick one of several labels for a value, bind it, and run its body.",
        'ticket = "The site is down!"\nchoose ticket by ?`how urgent is it` as urgency:\n  option "now":\n    queue = 1\n  option "later":\n    queue = 2\nexport urgency',
    ),
    "by": Entry(
        "The criterion of `choose`.",
        'text = "Hello"\nchoose text by ?`which language it is in` as language:\n  option "English":\n    pass\n  option "other":\n    pass',
    ),
    "option": Entry(
        "One label of `choose`, and what to do with it.",
        'text = "Hello"\nchoose text by ?`tone` as tone:\n  option "warm":\n    pass\n  option "cold":\n    pass',
    ),
    "constrain": Entry(
        "Let the judge check requirements; a value that misses one becomes an error value. Nothing is retried.",
        "agent writer()\n\ndraft = @writer `Write a slogan.`()\nconstrain draft(attempts=1):\n  require ?`at most ten words`\n  require ?`no exclamation mark`",
    ),
    "require": Entry(
        "One requirement of `constrain`.", 'draft = "Fresh bread."\nconstrain draft():\n  require ?`at most ten words`'
    ),
    "with": Entry(
        "`with input VALUE:` makes a value the implicit input `it` of a block; `.with(…)` derives an agent.",
        'agent writer(model="haiku")\n\nwith input "autumn":\n  poem = @writer `Write about {}.`()\ncareful = @writer.with(model="opus")',
    ),
    "input": Entry(
        "Part of `with input VALUE:`: a block whose implicit input `it` is that value.",
        'with input "autumn":\n  topic = it\nexport topic',
    ),
    "if": Entry(
        "Run the block whose condition is true. Conditions are booleans, or `?` with a criterion for the judge.",
        'report = "2 errors"\nif ?`it mentions an error`(report):\n  status = "red"\nelse:\n  status = "green"\nexport status',
    ),
    "elif": Entry(
        "A further condition of `if`.", 'x = 2\nif x > 3:\n  size = "big"\nelif x > 1:\n  size = "middle"\nexport size'
    ),
    "else": Entry(
        "The block to run when no condition of `if` is true.",
        'x = 2\nif x > 3:\n  size = "big"\nelse:\n  size = "small"\nexport size',
    ),
    "while": Entry("Repeat a block as long as a condition is true.", "n = 0\nwhile n < 3:\n  n = n + 1"),
    "for": Entry(
        "Run a block for each element of a list.", 'total = 0\nfor word in ["a", "bb"]:\n  total = total + len(word)'
    ),
    "in": Entry("The list of a `for`.", "for i in range(3):\n  pass"),
    "try": Entry(
        "Handle raised errors. A failed agent call is no raised error but an error value: see `match`.",
        'try:\n  raise "no data"\nexcept as problem:\n  answer = problem.error.message\nfinally:\n  done = true\nexport answer',
    ),
    "except": Entry(
        "The block to run after a raised error, which gets a name.",
        "try:\n  n = 1 + true\nexcept as problem:\n  n = 0\nexport n",
    ),
    "finally": Entry(
        "The block to run after `try`, with or without an error.", "done = false\ntry:\n  pass\nfinally:\n  done = true"
    ),
    "raise": Entry(
        "Raise an error with a text; inside `except` without a text, raise the same again.",
        'raise "the budget is spent"',
    ),
    "pass": Entry("Do nothing.", "if true:\n  pass"),
    "break": Entry("Leave the innermost loop.", "for i in range(9):\n  if i == 3:\n    break"),
    "continue": Entry(
        "Go on with the next pass of the innermost loop.", "for i in range(9):\n  if i == 3:\n    continue"
    ),
    "and": Entry(
        "Both are true; the right side is evaluated only if the left one is true.",
        'text = "A draft"\nready = len(text) > 3 and ?`it is polite`(text)\nexport ready',
    ),
    "or": Entry(
        "At least one is true; the right side is evaluated only if the left one is false.",
        "ready = false or true\nexport ready",
    ),
    "not": Entry("The opposite of a boolean.", 'ready = not ?`it is rude`("Good morning")\nexport ready'),
    "it": Entry(
        "The implicit input: of `with input`, `match` or `choose`; outside of them `()`. Agent calls and `?` without an argument use it.",
        'with input "autumn":\n  length = len(it)\nexport length',
    ),
    "true": Entry("The boolean value.", "ready = true\nexport ready"),
    "false": Entry("The boolean value.", "ready = false\nexport ready"),
    "error": Entry(
        "A pattern of `match`: any error value, one with a name, or one of a kind.",
        'result = {error: {kind: "timeout", message: "too slow"}}\nmatch result:\n  case error(kind="timeout"):\n    result = "later"\n  case error(_):\n    result = "never"',
    ),
}

FUNCTIONS: dict[str, Entry] = {
    "len": Entry(
        "`len(value)`: the characters of a string, items of a list or keys of an object.", 'n = len("abc")\nexport n'
    ),
    "range": Entry("`range(n)`: the list of the numbers from 0 to n - 1.", "for i in range(3):\n  pass"),
    "perm": Entry(
        '`perm(read=[], write=[], execute=[], bash="deny", network="deny")`: a permission object with all five keys.',
        'agent reader(permissions=perm(read=["docs/**"]))',
    ),
    "pack": Entry(
        "`pack(x, key=value)`: an object with the names of its arguments as keys.",
        'title = "A"\nbody = "B"\npage = pack(title, body, pages=1)\nexport page',
    ),
    "map": Entry(
        "`map(items, f)`: the results of a function for each item, in order. Ends at the first error value.",
        "def double(n):\n  return n + n\n\nxs = map([1, 2], double)\nexport xs",
    ),
    "pmap": Entry(
        "`pmap(items, f)`: `map` for all items at once; results in the order of the items.",
        'agent writer()\n\ndef draft(topic):\n  return @writer `Write about {}.`(topic)\n\npages = pmap(["spring", "autumn"], draft)\nexport pages',
    ),
    "filter": Entry(
        "`filter(items, pred)`: the items for which a function is true.",
        'def short(text):\n  return len(text) < 3\n\nxs = filter(["a", "bcd"], short)\nexport xs',
    ),
    "reduce": Entry(
        "`reduce(items, f, init=…)`: one value from all items, by `f(so_far, item)`.",
        "def add(a, b):\n  return a + b\n\nsum = reduce([1, 2, 3], add, init=0)\nexport sum",
    ),
    "refine": Entry(
        "`refine(seed, max, done, step)`: improve a value with `step(value, i)` until `done(value, i)` is true, at most `max` times.",
        'agent writer()\n\ndef good(draft, i):\n  return ?`clear and short`(draft)\n\ndef better(draft, i):\n  return @writer `Make it clearer.`(draft)\n\ntext = refine("A draft", 3, good, better)\nexport text',
    ),
}

KEYWORDS |= FUNCTIONS

PROPERTIES: dict[str, Entry] = {
    "model": Entry(
        "Which model an agent uses: a tier or a name.",
        'agent thinker(model="opus")',
        ('"haiku"', '"sonnet"', '"opus"'),
        (AGENT,),
    ),
    "prompt": Entry(
        "An agent's instructions; the task itself stands in the template of a call.",
        'agent writer(prompt="You write short, plain sentences.")',
        owners=(AGENT,),
    ),
    "skills": Entry(
        "Names of imported skills.",
        'import "web-search" from "github:example/skills"\n\nagent searcher(skills=["web-search"])',
        owners=(AGENT,),
    ),
    "permissions": Entry(
        "What an agent may read, write, execute, and whether it may use a shell or the network.",
        'agent builder(permissions=perm(read=["src/**"], bash="prompt"))',
        ("perm()",),
        (AGENT,),
    ),
    "memory": Entry(
        'A memory that outlives the call: a scope and a key, with a path for scope "path".',
        'agent scribe(memory={scope: "project", key: "log"})',
        ('{scope: "project", key: ""}',),
        (AGENT,),
    ),
    "retry": Entry(
        "How often a failed call is tried again.",
        'agent a()\n\nx = @a `Fetch it.`(retry=2, backoff="exponential")\nexport x',
        ("1", "2", "3"),
        (CALL,),
    ),
    "timeout": Entry(
        "How long one attempt may take.",
        'agent a()\n\nx = @a `Think.`(timeout="2m")\nexport x',
        ('"30s"', '"2m"', '"10m"'),
        (CALL,),
    ),
    "backoff": Entry(
        "How the pauses between attempts grow.",
        'agent a()\n\nx = @a `Fetch it.`(retry=3, backoff="fixed")\nexport x',
        ('"fixed"', '"exponential"'),
        (CALL,),
    ),
    "name": Entry("A label for the trace.", 'agent a()\n\nx = @a `Fetch it.`(name="fetch")\nexport x', owners=(CALL,)),
    "memory_mode": Entry(
        "What a call does with its agent's memory: read and write (`continue`), read (`dry_run`), neither (`fresh`).",
        'agent scribe(memory={scope: "project", key: "log"})\n\nx = @scribe `What is open?`(memory_mode="dry_run")\nexport x',
        ('"continue"', '"dry_run"', '"fresh"'),
        (CALL,),
    ),
    "read": Entry(
        "Patterns of the files that an agent may read.",
        'agent reader(permissions=perm(read=["docs/**"]))',
        ('["**"]',),
        (PERMISSIONS,),
    ),
    "write": Entry(
        "Patterns of the files that an agent may write.",
        'agent writer(permissions=perm(write=["out/**"]))',
        ('["**"]',),
        (PERMISSIONS,),
    ),
    "execute": Entry(
        "Patterns of the programs that an agent may run.",
        'agent runner(permissions=perm(execute=["make"]))',
        ('["**"]',),
        (PERMISSIONS,),
    ),
    "bash": Entry(
        "Whether an agent may use a shell; `prompt` asks the operator each time.",
        'agent builder(permissions={bash: "prompt"})',
        ('"allow"', '"deny"', '"prompt"'),
        (PERMISSIONS,),
    ),
    "network": Entry(
        "Whether an agent may use the network; `prompt` asks the operator each time.",
        'agent searcher(permissions={network: "allow"})',
        ('"allow"', '"deny"', '"prompt"'),
        (PERMISSIONS,),
    ),
    "scope": Entry(
        "Where a memory is kept: with the project, with the user, or at a path.",
        'agent scribe(memory={scope: "user", key: "log"})',
        ('"project"', '"user"', '"path"'),
        (MEMORY,),
    ),
    "key": Entry(
        "The name of a memory. Agents with the same scope and key share it.",
        'agent scribe(memory={scope: "project", key: "team/a"})',
        owners=(MEMORY,),
    ),
    "path": Entry(
        'The directory of a memory with scope "path".',
        'agent scribe(memory={scope: "path", key: "log", path: "notes"})',
        owners=(MEMORY,),
    ),
    "attempts": Entry(
        "A bound for the trace; it causes no retry.",
        'draft = "x"\nconstrain draft(attempts=3):\n  require ?`short`',
        owners=(CONSTRAIN,),
    ),
    "time": Entry(
        "A bound for the trace.",
        'draft = "x"\nconstrain draft(time="5m"):\n  require ?`short`',
        ('"5m"',),
        (CONSTRAIN,),
    ),
    "budget": Entry(
        "A bound for the trace.", 'draft = "x"\nconstrain draft(budget=1.5):\n  require ?`short`', owners=(CONSTRAIN,)
    ),
}

ERROR_KINDS: dict[str, str] = {
    "spawn_failed": "the session could not be started, or its backend failed",
    "timeout": "an attempt took longer than `timeout`",
    "rejected": "a policy or permission refused it",
    "binding_failed": "filesystem mode: the session wrote no binding file",
    "locked": "another process held the memory's lock for too long",
    "cancelled": "the call was cancelled by the operator",
    "constraint_violation": "a `require` failed",
    "thrown": "`raise`, or a fault of the program at run time",
}
"""The kinds of error values that the runtime makes. A program may make others."""
