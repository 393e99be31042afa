# ruff: noqa: E501 - one line a word reads best
"""Short documentation of every keyword and property, each with an example: what inspection shows and completion offers."""

from __future__ import annotations

from prose_kernel.language.words import Entry

KEYWORDS: dict[str, Entry] = {
    "session": Entry(
        "Give a task to an agent and wait for its answer. The value refers to the answer.",
        'let plan = session "Draft a plan for {topic}"\n\nsession: writer\n  prompt: "Write the summary"\n  context: plan',
    ),
    "resume": Entry(
        "Go on with an agent that keeps a memory (`persist`).",
        'agent captain:\n  persist: true\n\nsession: captain\n  prompt: "Begin"\nresume: captain\n  prompt: "Continue"',
    ),
    "exec": Entry(
        "Run a shell command. Its stdout is the value; a failure is an error unless `on-fail` says otherwise.",
        'exec "make test"\n\nlet log = exec "git log --oneline -5"\n  timeout: "30s"\n  on-fail: "continue"',
    ),
    "gate": Entry(
        "Stop until a person approves or rejects.",
        'gate deploy:\n  prompt: "Deploy to production?"\n  timeout: "1h"\n  on_reject: throw "not now"',
    ),
    "input": Entry(
        "Ask for a value. `%input NAME=VALUE` or `--input` answers it beforehand.",
        'input topic: "What should it be about?"',
    ),
    "output": Entry(
        "Bind a value and mark it as a result of the program.", 'output summary = session "Sum up {notes}"'
    ),
    "agent": Entry(
        "Define an agent for sessions: its model, instructions and tools.",
        'agent writer:\n  model: sonnet\n  prompt: "You write short, plain sentences."\n\nsession: writer\n  prompt: "Write a haiku"',
    ),
    "block": Entry(
        "Define steps that `do` calls by name, with parameters.",
        'block greet(name):\n  exec "echo hello {name}"\n\ndo greet("world")',
    ),
    "do": Entry(
        "Call a block, or group steps.", 'do greet("world")\n\nlet last = do:\n  exec "make"\n  exec "git describe"'
    ),
    "use": Entry(
        "Import another program (a file, `handle/name`, an https address); call it by its name.",
        'use "./review.prose" as review\n\nlet result = review(topic: "tests")',
    ),
    "import": Entry(
        "Import a skill (the old form; `skills:` of an agent replaces it).", 'import "search" from "./skills"'
    ),
    "let": Entry("Bind a value to a name.", 'let rev = exec "git rev-parse --short HEAD"'),
    "const": Entry("Bind a value that never changes.", "const limit = 3"),
    "parallel": Entry(
        "Run branches at the same time and wait for them.",
        'parallel:\n  tests = exec "make test"\n  lint = exec "make lint"\n\nparallel ("any", count: 1, on-fail: "ignore"):\n'
        '  exec "curl -sf https://a.example"\n  exec "curl -sf https://b.example"',
    ),
    "for": Entry(
        "Do something for each element of a collection; with `parallel` for all at once.",
        'for name, at in ["a", "b"]:\n  exec "echo {at} {name}"\n\nparallel for file in files:\n  exec "wc -l {file}"',
    ),
    "repeat": Entry("Do something a number of times.", 'repeat 3 as i:\n  exec "echo {i}"'),
    "loop": Entry(
        "Do something until a condition holds, or for ever.",
        'loop until **the tests pass** (max: 5):\n  session "Fix the next failing test"',
    ),
    "if": Entry(
        "Take the first branch whose condition holds. Write a condition in words between `**`.",
        'if **the report mentions an error**:\n  session "Explain the error"\nelif count > 3:\n  exec "true"\nelse:\n  exec "echo fine"',
    ),
    "elif": Entry("A further condition of `if`.", 'if x > 3:\n  let size = "big"\nelif x > 1:\n  let size = "middle"'),
    "else": Entry("The statements to run when no condition holds.", 'if ok:\n  exec "true"\nelse:\n  throw "not ok"'),
    "choice": Entry(
        "Let the judge pick one of the options.",
        'choice **how serious is it**:\n  option "minor":\n    let label = "later"\n  option "severe":\n    let label = "now"',
    ),
    "option": Entry(
        "One option of `choice`.", 'choice **the best tone**:\n  option "formal":\n    let tone = "formal"'
    ),
    "try": Entry(
        "Handle errors of the statements in the body.",
        'try:\n  exec "make"\ncatch as problem:\n  session "Explain {problem}"\nfinally:\n  exec "make clean"',
    ),
    "catch": Entry(
        "The statements to run after an error in `try`.", 'try:\n  exec "false"\ncatch as e:\n  exec "echo failed"'
    ),
    "finally": Entry(
        "The statements to run after `try`, with or without an error.",
        'try:\n  exec "make"\nfinally:\n  exec "make clean"',
    ),
    "throw": Entry(
        "Raise an error; inside `catch` without a text, raise the same again.", 'throw "the budget is spent"'
    ),
    "return": Entry("Leave a block with a value, or end the program.", "block first(items):\n  return items[0]"),
    "break": Entry("Leave the innermost loop.", 'loop (max: 10):\n  if **done**:\n    break\n  session "Next step"'),
    "continue": Entry("Go on with the next pass of the loop.", "for x in [1, 2, 3]:\n  if x == 2:\n    continue"),
    "assert": Entry("Raise an error unless a condition holds.", 'assert count > 0:\n  "nothing was found"'),
    "map": Entry(
        "Do something with each element of a pipeline; the element is `item`.",
        'let sizes = files | map:\n  exec "wc -c {item}"',
    ),
    "pmap": Entry("`map` for all elements at once.", 'let pages = urls | pmap:\n  exec "curl -s {item}"'),
    "filter": Entry(
        "Keep the elements for which the condition holds.", "let good = items | filter:\n  **{item} is in English**"
    ),
    "reduce": Entry(
        "Combine all elements into one value.",
        'let all = notes | reduce(sum, item):\n  session "Merge {sum} and {item}"',
    ),
    "and": Entry(
        "Both hold. The right side is evaluated only if the left side holds.",
        'if a > 1 and **it is ready**:\n  exec "true"',
    ),
    "or": Entry("At least one holds.", 'if a or b:\n  exec "true"'),
    "not": Entry("The opposite.", 'if not **the build is green**:\n  throw "red"'),
    "is": Entry("Equal to.", 'if mode is "fast":\n  exec "make -j"'),
    "until": Entry(
        "End a loop when the condition holds.", 'loop until **it is good** (max: 3):\n  session "Improve it"'
    ),
    "while": Entry(
        "Go on with a loop as long as the condition holds.",
        'loop while **errors remain** (max: 3):\n  session "Fix one"',
    ),
    "as": Entry(
        "Name a loop number, an error or an imported program.",
        'repeat 3 as i:\n  exec "echo {i}"',
    ),
    "in": Entry("Name the collection of a `for`.", 'for name in ["a", "b"]:\n  exec "echo {name}"'),
    "true": Entry("The boolean value.", "let ready = true"),
    "false": Entry("The boolean value.", "let ready = false"),
    "null": Entry("No value.", "let found = null"),
}

_SPAWN = ("session", "resume", "agent")
PROPERTIES: dict[str, Entry] = {
    "prompt": Entry("The task, an agent's instructions, or the question of a gate.", 'session: writer\n  prompt: "Write it"', owners=("session", "resume", "agent", "gate")),
    "model": Entry("Which model an agent uses.", "agent thinker:\n  model: opus", ("sonnet", "opus", "haiku"), ("session", "agent", "resume")),
    "context": Entry("Values that the session reads.", 'session "Compare them"\n  context: [first, second]', owners=_SPAWN),
    "skills": Entry("Skills of an agent.", 'agent searcher:\n  skills: ["web-search"]', owners=("agent", "session")),
    "permissions": Entry("What an agent may do.", 'agent builder:\n  permissions:\n    read: ["src/**"]\n    bash: prompt', owners=("agent",)),
    "persist": Entry("Whether an agent keeps a memory, and where.", "agent captain:\n  persist: project", ("true", "false", "project", "user"), ("agent",)),
    "retry": Entry("How often a failed session or command is tried again. `lost`: a command whose worker was lost.", 'session "Fetch it"\n  retry: 3\n\nexec "curl -fsS https://example.org"\n  retry: 3', owners=("session", "resume", "exec")),
    "backoff": Entry("How the pauses between retries grow.", 'session "Fetch it"\n  retry: 3\n  backoff: exponential', ("none", "linear", "exponential"), ("session", "resume", "exec")),
    "timeout": Entry("How long it may take.", 'exec "make"\n  timeout: "10m"', ('"30s"', '"2m"', '"10m"', '"1h"'), ("exec", "gate", "session", "resume")),
    "on-fail": Entry("What a failure means.", 'exec "grep -c TODO src"\n  on-fail: "ignore"', ('"throw"', '"continue"', '"ignore"'), ("exec", "parallel")),
    "reads": Entry("The files that a command depends on, as globs; `[]`: none. An edited program keeps its result while they are unchanged.", 'exec "pytest -q"\n  reads: ["src/**", "tests/**"]\n  writes: []', owners=("exec",)),
    "writes": Entry("The files that a command makes, as globs.", 'exec "make report.pdf"\n  reads: ["*.tex"]\n  writes: ["report.pdf"]', owners=("exec",)),
    "cwd": Entry("Where a command runs, without changing the directory of later ones.", 'exec "make"\n  cwd: "./docs"', owners=("exec",)),
    "stdin": Entry("The standard input of a command; an array or object as JSON.", 'let rows = [1, 2]\nexec "wc -c"\n  stdin: rows', owners=("exec",)),
    "env": Entry("Environment variables for a command: the safe way to pass values to it.", 'let name = "a b"\nexec "printf %s \\"$name\\""\n  env: { name }', ("{ }",), ("exec",)),
    "max-output": Entry("How many characters of each stream the value keeps, up to 100,000,000.", 'exec "seq 1 20000"\n  max-output: 200000', ("200000",), ("exec",)),
    "format": Entry("What the output of a command is, for loops, paths and indexes.", 'let rows = exec "cat users.csv"\n  format: "csv"', ('"json"', '"jsonl"', '"csv"', '"lines"'), ("exec",)),
    "display": Entry("A file that the command makes, shown when it has succeeded: an image, PDF, page, table, text.", 'exec "python3 plot.py"\n  display: "chart.png"', owners=("exec",)),
    "pipefail": Entry("Whether a pipe fails when any command in it does, not only the last.", 'let tests = exec "pytest 2>&1 | tail -20"\n  on-fail: "continue"\n  pipefail: true', ("true", "false"), ("exec",)),
    "needs": Entry("Resources that the machine must have while a command runs: amounts, or `true` for a tag.", 'exec "python3 train.py"\n  needs: { GPU: 1 }', ("{ GPU: 1 }",), ("exec",)),
    "allow": Entry("Who may approve a gate.", 'gate release:\n  prompt: "Release?"\n  allow: ["user"]', ('["user"]',), ("gate",)),
    "budget": Entry("What it may consume at most: money, tokens, time, sessions.", 'session "Survey the field"\n  budget: "20k tokens, 5 min"', owners=("session", "resume", "agent")),
    "output": Entry("What the answer is: an object with these fields, or of a JSON Schema.", 'session "Review it"\n  output:\n    verdict: "approve" or "reject"\n    remarks: [text]', owners=("session", "resume", "agent")),
    "tools": Entry("Tools of your own (MCP servers of prose.toml, functions of prose_tools.py), or `none` for no tools at all.", 'session "Plan the trip"\n  tools: ["weather.forecast", "word_count"]', ("none",), owners=("session", "resume", "agent")),
    "on_reject": Entry("What a rejected gate does.", 'gate release:\n  prompt: "Release?"\n  on_reject: continue', ("throw", "continue", "retry", 'session ""'), ("gate",)),
    "max": Entry("The most passes a loop makes.", "loop until **done** (max: 5):\n  session \"Next\"", owners=("loop",)),
    "count": Entry("How many successes `any` waits for.", 'parallel ("any", count: 2):\n  exec "true"\n  exec "true"', owners=("parallel",)),
}  # fmt: skip

SCRIPT_KEYWORDS: dict[str, Entry] = {
    "call": Entry(
        "Call a function of a contract file, with its inputs on the lines below (ProseScript).",
        'let report = call brief\n  topic: topic\n  retry: 2\n\nlet { title, body } = call "./write"',
    ),
    "record": Entry(
        "Put a value at the end of a list (ProseScript; kept for existing files).", "record result in found"
    ),
    "append": Entry(
        "Put a value at the end of a list (ProseScript; kept for existing files).", "append result to found"
    ),
}

SCRIPT_PROPERTIES: dict[str, Entry] = {
    "shape": Entry(
        "What an agent is responsible for, what it delegates, what it must not do (ProseScript).",
        'agent editor:\n  prompt: "You edit."\n  shape:\n    self: "wording"\n    prohibited: ["new facts"]',
    ),
}
