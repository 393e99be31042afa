"""Realistic programs as users write them; each is free of errors in the `default` profile."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {}

PROGRAMS["research and write"] = """
# The smallest useful program: two sessions and a context.
input topic: "The subject to research"
input depth: "How deep to go (shallow, medium, deep)"

agent researcher:
  model: opus
  prompt: "You are a careful researcher of {topic}"

let raw = session: researcher
  prompt: "Research {topic} at {depth} depth"

output findings = session "Synthesize the research"
  context: raw
output sources = session "Extract the sources"
  context: { raw, topic }
"""

PROGRAMS["captain and crew"] = '''
agent captain:
  model: opus
  persist: true
  prompt: "You coordinate and review, never implement directly"

agent executor:
  model: sonnet
  prompt: """
Carry out one task with care.

Answer as JSON: {"done": true, "notes": "{short note}"}
"""

input task: "What should the crew do?"

let plan = session: captain
  prompt: "Break {task} into steps"

for step, index in plan:
  let work = session: executor
    prompt: "Do step {index}: {step}"
    context: { plan, step }
  let review = resume: captain
    prompt: "Review step {index}"
    context: work
  if **review asks for changes to the work**:
    work = session: executor
      prompt: "Apply the review"
      context: [work, review]
    retry_count = 1

output report = resume: captain
  prompt: "Report on everything that was done"
'''

PROGRAMS["parallel continuous integration"] = """
parallel (on-fail: "continue"):
  test = exec "npm test"
    on-fail: "continue"
    timeout: "5m"
  lint = exec "npm run lint"
  types = exec "npm run typecheck"
    cwd: "packages/core"
  security = exec "npm audit"

if **any of test, lint, types or security indicates failures**:
  let diagnosis = session "Diagnose the failures"
    context: { test, lint, types, security }
  output report = diagnosis
else:
  output report = session "Summarize the results"
    context: [test, lint, types, security]
"""

PROGRAMS["deploy with gates"] = '''
let status = exec "git status --porcelain"
let version = exec "git describe --tags"

if **there are uncommitted changes in status**:
  gate confirm_commit:
    prompt: "Uncommitted changes detected. Commit before proceeding?"
    on_reject: throw "Aborted: uncommitted changes"
  exec "git add -A && git commit -m 'auto-commit before deploy'"

try:
  exec "make test"
    timeout: "8m"
  gate release_ok:
    prompt: """
Publish {version}?

Answer approve or reject.
"""
    allow: ["user"]
    timeout: "2h30m"
    on_reject: session "Write down why nothing was published"
  exec "git push origin {version}"
catch as err:
  session "The deploy failed, diagnose the error"
    context: err
  throw err
finally:
  exec "rm -rf /tmp/deploy"
    on-fail: ignore
'''

PROGRAMS["recursive split"] = """
block solve(problem, depth) (max_depth: 20):
  if depth <= 0 or **the problem is small enough to solve at once**:
    output session "Solve it directly"
      context: problem
  let parts = session "Split the problem into independent parts"
    context: problem
  let results = []
  parallel for part in parts:
    let r = do solve(part, depth - 1)
    results = results + [r]
  output session "Combine the results"
    context: results

input problem_text: "What is the problem?"
output answer = do solve(problem_text, 3)
"""

PROGRAMS["soft exports"] = """
block login():
  output access = session "Obtain an access token"

block gather():
  parallel:
    api = session "Read the API documentation"
      context: access
    ui = session "Look through the user interface"
      context: { access.token }

do login()
do gather()

session "Write the guide"
  context: { access, api, ui }
"""

PROGRAMS["refinement loop"] = """
let draft = session "Write a first draft of the announcement"
let n = 0
loop until **the draft is clear, short and correct** (max: 5) as round:
  let n = n + 1
  draft = session "Improve the draft (round {round})"
    context: draft
    retry: 3
    backoff: exponential
session "Report after {n} rounds"
  context: { draft, n }
output final = draft
"""

PROGRAMS["triage"] = """
input report_text: **a description of what went wrong, with logs if there are any**

let severity = session "Judge the severity; answer with one word"
  context: report_text

choice **the severity and the kind of the problem**:
  option "Critical":
    let ticket = session "Escalate immediately"
    output outcome = ticket
  option "Major":
    let ticket = session "Plan a fix this week"
    output outcome = ticket
  option "Minor":
    output outcome = session "Log it for later"

if severity is "critical":
  session "Call somebody"
elif severity == "major":
  session "Write to somebody"
else:
  session "Thank the reporter"
"""

PROGRAMS["pipelines"] = """
let files = exec "git ls-files '*.py'"
let topics = ["parsing", "printing", "packing"]

let notes = topics | map: session "Collect notes on {item}"
let good = notes
  | filter:
    session "Is this worth keeping? Answer yes or no"
      context: item
  | pmap:
    let short = session "Shorten it"
      context: item
    session "Polish it"
      context: short
  | reduce(all, note):
    session "Add the note to the collection"
      context: [all, note]
output digest = good
"""

PROGRAMS["composition"] = """
use "alice/research"
use "bob/critique" as critic
use "./shared/tidy.prose" as tidy

input topic: "What is it about?"

let result = research(topic: topic, depth: "deep")
let { findings, sources } = research(topic: "the background of {topic}")
critic(text: result.findings)

session "Write a summary"
  context: { findings, sources, more: result.findings }
output text = tidy(text: findings)
"""

PROGRAMS["templates in prompts"] = '''
agent writer:
  model: sonnet
  prompt: """
Use this template:

# {Title}
{one sentence about the subject}
{{name}} and { spaced } and {} stay as they are; so does {"k": 1}.
"""

let a = session: writer
  prompt: """Fill the template for a dog.
Escapes: \\{name\\}, and a shell line \\
that goes on."""
let b = session "Write JSON like {\\"a\\": [1, 2]}"
output both = [a, b]
'''

PROGRAMS["crash diagnosis"] = '''
# Commands whose braces belong to the shell.
let home = exec "echo $HOME"
let names = exec "awk '{ print $1 }' /etc/passwd"
let sizes = exec "for i in {1..3}; do echo ${HOME:-/tmp}; done"
let raw = exec "curl -s -w '%\\{http_code\\}' http://localhost:1"
  on-fail: continue
let logs = exec """
cd /var/log
tail -n 100 syslog 2>/dev/null || true
"""
  timeout: 30s
  on-fail: "ignore"
let stale = session "Which of these users look stale?"
  context: { home, names, sizes, raw, logs }
for user in stale:
  exec "id {user}"
    on-fail: ignore
'''

PROGRAMS["memory across runs"] = """
agent librarian:
  model: haiku
  persist: project
  prompt: "You remember what the project decided"
  skills: ["web"]
  permissions:
    read: ["**/*.md"]
    write: []
    bash: deny

agent guest:
  persist: "notes/guest/"
  prompt: "You visit now and then"

import "web" from "github:example/skills"

let known = resume: librarian
  prompt: "What do we know about the parser?"
let view = resume: guest
  context: librarian
output answer = session: librarian
  prompt: "Write down what is new"
  context: [known, view]
"""

PROGRAMS["early ends"] = """
input request: "What shall be done?"

let check = session "Is the request clear? Answer yes or no"
  context: request

if check == "no":
  return { status: "unclear", request }

block attempt(what, tries):
  if tries <= 0:
    return
  let r = session "Try: {what}"
  if **r did not succeed in what was asked**:
    return do attempt(what, tries - 1)
  output r

let outcome = do attempt(request, 3)
assert outcome != null:
  "nothing came of {request}"

repeat 3 as i:
  if i == 1:
    continue
  if **the outcome is plainly good enough**:
    break
  session "Improve it, pass {i}"
    context: outcome
output { status: "done", outcome }
"""

PROGRAMS["race and quorum"] = """
parallel ("first"):
  quick = session "Answer fast"
  thorough = session "Answer well"

parallel ("any", count: 2, on-fail: "ignore"):
  one = session "Vote as the first juror"
  two = session "Vote as the second juror"
  three = session "Vote as the third juror"

let sweep = parallel:
  left = do:
    let here = exec "ls left"
    session "Describe what is here"
      context: here
  right = do:
    let here = exec "ls right"
    session "Describe what is here"
      context: here

session "Compare"
  context: { quick, thorough, one, two, three, sweep }
"""

PROGRAMS["arrows and labels"] = """
agent editor:
  prompt: "You edit"

session "Outline the article" -> session "Write the article" -> session: editor
let last = session "Collect the figures"
  -> exec "date"
session proofread: editor
  prompt: "Proofread the article"
  context: "Mind the house style"
  model: haiku
"""

PROGRAMS["collected outputs"] = """
let report = session "Write the report"
output report = report

let rows = { name: "a", "long name": [1, 2.5, -3], nested: { ok: **the report is complete and clear** } }
let first = rows.nested
let second = rows["long name"][0]
let count = 0
for row, i in ["x", "y"]:
  count = count + 1
  let line = session "Row {row} is number {i}, {rows.name}"
  if not line:
    let count = count - 1
session "All {count} rows are done"
  context:
    file: report
    file: rows
"""

PROGRAMS["cleanup"] = """
try:
  let lock = exec "mktemp -d"
  parallel for dir in ["a", "b", "c"]:
    exec "make -C {dir}"
      timeout: "9m"
catch as failure:
  if **failure names a missing tool**:
    input tool: "Which tool shall be installed?"
    exec "brew install {tool}"
  else:
    throw "the build failed: {failure.message}"
finally:
  exec "rmdir {lock}"
    on-fail: ignore
"""
