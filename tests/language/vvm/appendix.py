"""A program for each row of docs/reference/vvm.md appendix A, with the constructs in the row, and the fenced programs of
the founding document with the names that each needs."""

from __future__ import annotations

from typing import Final

TEAM: Final = """\
agent analyst(model="sonnet", prompt="Weigh evidence.")

def triage(ticket):
  return ?`urgent for a customer`(ticket)

def plan(ticket):
  return @analyst `Plan for {ticket.title}.`(ticket)

export triage
export plan
export @analyst
"""

EXAMPLES: Final[dict[str, str]] = {
    "01 hello-world": """\
agent greeter(model="haiku")
greeting = @greeter `Say hello to the world.`(())
export greeting
""",
    "02 simple-agent-call": """\
agent writer(model="sonnet", prompt="You write short texts.")
topic = "lighthouses"
text = @writer `Write one paragraph about {topic}.`(topic)
export text
""",
    "03 semantic-predicate": """\
agent clerk(model="haiku")
mail = {from: "ada@example.org", subject: "Refund", body: "It broke on day one."}
if ?`asks for a refund`(mail) and ?`sounds angry`(mail.body):
  answer = @clerk `Apologise and refund.`(mail)
else:
  answer = @clerk `Answer politely.`(mail)
urgent = ?`needs an answer today`(mail)
export answer
export urgent
""",
    "04 match-statement": """\
agent desk(model="haiku")
request = {text: "Where is my parcel?", user: {name: "Lin"}}
match request.text:
  case ?`about delivery`:
    reply = @desk `Tell {request.user.name} where it is.`(request)
  case ?`about payment`:
    reply = @desk `Explain the invoice.`(request)
  case ?`a complaint`:
    reply = @desk `Apologise.`(request)
  case ?`praise`:
    reply = "Thank you!"
  case _:
    reply = @desk `Ask what is meant.`(request)
export reply
""",
    "05 if-elif-else": """\
order = {total: 120, country: "NO", items: 3, note: "gift"}
if order.total > 100 and not (order.country == "NO" or order.items < 2):
  level = "express"
elif (order.total >= 50 or ?`looks like a gift`(order.note)) and order.items != 0:
  level = "standard"
elif order.total <= 10:
  level = "letter"
else:
  level = "none"
export level
""",
    "06 while-loop": """\
agent writer(model="sonnet",)
draft = @writer `Write a first draft.`(())
rounds = 0
while len(draft) < 400 and rounds < 5:
  draft = @writer `Make it longer.

Keep the style of the text:
{draft}`(draft)
  rounds = rounds + 1
export draft
""",
    "07 for-loop": """\
agent rater(model="haiku")
names = ["a", "b", "c"]
scores = []
total = 0.0
for name in names:
  scores = scores + [@rater `Reply as JSON: {{"score": 0.5, "name": "{name}"}}`(name)]
for i in range(len(scores)):
  total = total + scores[i].score
export scores
export total
""",
    "08 with-input": """\
agent reader(model="sonnet")
paper = "A long text"
with input paper:
  summary = @reader `Summarise.`()
  with input summary:
    title = @reader `A title for it.`()
    check = ?`fits`(it)
  again = @reader `Once more.`(it)
export pack(summary, title, check, again)
""",
    "09 agent-options": """\
agent fetcher(model="haiku")
source = {url: "https://example.org", depth: 2}
page = @fetcher `Fetch {source.url} to depth {source.depth}.`(
  source,
  retry=3,
  timeout="30s",
  backoff="exponential",
  name="fetch",
)
match page:
  case error(kind="timeout"):
    page = "(late)"
  case error(kind="rejected"):
    page = "(refused)"
  case error(_):
    page = "(failed)"
  case _:
    pass
export page
""",
    "10 code-council": '''\
agent base(model="opus", prompt="""You review code.

Quote with \\"\\"\\" sparingly; braces {like these} are text here.""")
agent chair(model="opus")
security = base.with(prompt="Look for holes.")
speed = base.with(prompt="Look for waste.", model="sonnet")
style = base.with(model="haiku").with(prompt="Look for clutter.")
council = [security, speed, style]
code = "def f(): pass"

def review(member):
  return @member `Review this code; put findings in \\`\\`\\` fences.`(code)

reviews = pmap(council, review)
verdict = @chair `Decide.`(pack(code, reviews))
export verdict
''',
    "11 parallel-pmap": """\
agent researcher(model="sonnet")
agent editor(model="opus")
topic = "tides"
angles = ["history", "physics", "trade"]

def research(angle):
  return @researcher `Research {topic}: {angle}.`(pack(topic, angle))

parts = pmap(angles, research)
report = @editor `Join the parts.`(pack(topic, parts))
export report
""",
    "12 functions": """\
agent helper(model="haiku")

def normalise(text):
  if text == "":
    return {ok: false, error: "empty"}
  return {ok: true, text: text}

def ask(text, tone):
  checked = normalise(text)
  if not checked.ok:
    return checked
  return @helper `Answer in a {tone} tone.`(checked.text)

def both(text):
  return [ask(text, "dry"), ask(tone="warm", text=text)]

answers = both("What is a tide?")
export answers
""",
    "13 skill-imports": """\
import "web-search" from "github:example/web-search"
import "pdf" from "npm:pdf-tools"

agent scout(
  model="sonnet",
  skills=["web-search", "pdf",],
  permissions=perm(
    read=["docs/**",],
    network="allow",
  ),
)

found = []
misses = 0
for query in ["a", "b"]:
  result = @scout `Search for {query}.`(query)
  found = found + [{query: query, good: ?`relevant`(result),}]
  if ?`nothing was found`(result):
    misses = misses + 1
export found
export misses
""",
    "14 module-imports": """\
from "./team-agents.vvm" import plan
from "./team-agents.vvm" import triage as is_urgent
from "./team-agents.vvm" import @analyst
from "./team-agents.vvm" import @analyst as second
ticket = {title: "Login fails", text: "since noon"}
if is_urgent(ticket):
  outcome = plan(ticket)
else:
  outcome = @analyst `Look at {ticket.title}.`(ticket)
check = @second `Check it.`(outcome)
export outcome
export check
""",
    "15 error-values": """\
agent flaky(model="haiku")
agent logger(model="haiku")
data = @flaky `Try it.`(())
match data:
  case error(kind="timeout"):
    data = {error: {kind: "fallback", message: "late"}}
  case error(kind="rejected"):
    @logger `Refused.`(it)
  case error(kind="spawn_failed"):
    @logger `No session.`(it)
  case error(e):
    if ?`can be repaired`(e):
      @logger `Note {e.error.message}.`(e)
  case _:
    @logger `All is well.`(it)
choose data by ?`What should happen next?` as step:
  option "retry":
    data = @flaky `Again.`(())
  option "stop":
    pass
export data
export step
""",
    "16 try-except-finally": """\
agent worker(model="haiku")
agent logger(model="haiku")
status = "new"
try:
  result = @worker `Do it.`(())
  choose result by ?`How good is it?` as grade:
    option "fine":
      status = "done"
    option "bad":
      raise "not good enough"
except as err:
  status = err.error.message
finally:
  @logger `Status: {status}`(status)
export status
""",
    "17 choose-statement": """\
agent desk(model="haiku")
ticket = {id: 7, text: "Charged twice", user: {plan: "pro"}}
choose ticket by ?`Which team handles ticket {ticket.id} of a {ticket.user.plan} user?` as team:
  option "billing":
    answer = @desk `Answer as billing.`(ticket)
  option "technical":
    answer = @desk `Answer as support.`(ticket)
  option "sales":
    answer = @desk `Answer as sales.`(ticket)
  option "other":
    answer = @desk `Ask back.`(ticket)
export pack(team, answer)
""",
    "18 constrain-require": """\
agent writer(model="sonnet")
agent fixer(model="opus")
poem = @writer `Write a haiku.`(())
constrain poem(attempts=3, time="2m", budget=0.5):
  require ?`has three lines`
  require ?`names a season`
match poem:
  case error(kind="constraint_violation"):
    poem = @fixer `Repair: {}`(poem.error.data.violations)
  case error(_):
    poem = ""
  case _:
    pass
wrapped = {status: "checked", error: {message: "none"}}
export poem
export wrapped
""",
    "19 refine-loop": """\
agent critic(model="haiku")
agent writer(model="opus")

def done(text, i):
  notes = @critic `Anything left to improve?`(text)
  return ?`nothing is left to do`(notes) or i >= 4

def step(text, i):
  return @writer `Improve it, round {i}.`(text)

final = refine(seed="A first sentence.", max=5, done=done, step=step)
export final
""",
    "20 collection-helpers": """\
agent rater(model="haiku")
words = ["ebb", "flow", "spring tide"]

def long(word):
  return len(word) >= 4

def rate(word):
  def constant(_):
    return 1
  return {word: word, text: @rater `Rate {word}.`(word), score: constant(word)}

def add(total, item):
  return total + item.score

rated = pmap(filter(words, long), rate)
total = reduce(rated, add, init=0)
for _ in range(3):
  total = total + 1
lengths = map(words, len)
export pack(rated, total, lengths)
""",
    "21 pack-helper": """\
agent writer(model="sonnet")
title = "Tides"
audience = "children"
text = @writer `Write it.`(pack(title, audience, words=300, sections=["why", "when"]))
export text
""",
    "22 full-research-pipeline": """\
agent scout(model="haiku")
agent analyst(model="opus")

def pipeline(question, check):
  def search(query):
    return @scout `Search: {query}`(query)
  def judge(note):
    return check(note)
  plan = @analyst `Three queries as JSON: {{"queries": []}}`(question)
  notes = pmap(plan.queries, search)
  good = filter(notes, judge)
  report = @analyst `Report on {question}.`(pack(question, good, first=good[0]))
  constrain report(attempts=2):
    require ?`answers the question {question}`
    require ?`cites its sources`
  return report

def is_relevant(note):
  return ?`relevant`(note)

report = pipeline("Why are there two tides a day?", is_relevant)
match report:
  case error(kind="constraint_violation"):
    final = report.error.data.value
  case _:
    final = report
export final
""",
    "23 ralph-wiggum-loop": """\
agent coder(model="sonnet", permissions=perm(read=["**"], write=["src/**"], bash="allow"))

def done(state, _):
  return ?`all tests pass`(state)

def step(state, i):
  return @coder `Attempt {i}: make the tests pass.`(state)

state = refine("nothing done yet", 50, done, step)
constrain state():
  require ?`the tests are real`
export state
""",
    "24 agent-memory-basic": """\
agent companion(
  model="sonnet",
  prompt="You remember what was said.",
  memory={scope: "user", key: "companion:main"}
)
first = @companion `Take note of this.`({name: "Lin", likes: ["tea", {kind: "music", by: "Bach"}]})
second = @companion `What do I like?`(())
export first
export second
""",
    "25 agent-memory-modes": """\
agent keeper(model="haiku", memory={scope: "project", key: "keeper"})
a = @keeper `Note C:\\temp as the place.`("x", memory_mode="continue")
b = @keeper `What would you note?`((), memory_mode="dry_run")
c = @keeper `Answer without memory.`((), memory_mode="fresh")
d = @keeper `What is noted?`(memory_mode="continue")
export pack(noted=a, tried=b, fresh=c, now=d)
""",
    "26 agent-memory-multi-tenant": """\
agent assistant(model="haiku", memory={scope: "project", key: "default"})

def serve(tenant, question):
  return @assistant.with(memory={scope: "project", key: "tenant:" + tenant}) `Answer.`(question)

acme = serve("acme", "Who are we?")
umbra = serve("umbra", "Who are we?")
export pack(acme, umbra)
""",
    "27 agent-memory-parallel-safe": """\
agent noter(model="haiku", memory={scope: "project", key: "notes"})
pages = ["one", "two", "three"]

def read(page):
  return @noter `Read it.`(page, memory_mode="fresh")

notes = pmap(pages, read)
merged = @noter `Remember what matters.`(notes)
export merged
""",
    "28 ref-composition": """\
agent researcher(model="sonnet")
agent writer(model="opus")
research = @researcher `Research tides.`("tides")
report = @writer `Write a report.`(research)
export report
""",
    "29 ref-loop-accumulation": """\
agent writer(model="sonnet")
agent editor(model="opus")
chapters = []
for title in ["Ebb", "Flow"]:
  chapter = @writer `Write the chapter {title}.`(pack(title, so_far=chapters))
  chapters = chapters + [chapter]
book = @editor `Make a book.`(chapters)
export book
""",
    "30 materializer-pattern": """\
agent researcher(model="sonnet")
agent materializer(model="haiku", permissions=perm(read=[".vvm/runs/**"], write=[]))
research = @researcher `Research.`("tides")
quotes = @materializer `Three quotes, word for word.`(research)
export quotes
""",
    "31 run-inspector": """\
agent inspector(model="sonnet", permissions=perm(read=[".vvm/runs/**"]))
run = "20260301-101500-9c0d1e"
path = ".vvm/runs/" + run + "/state.md"
findings = @inspector `Inspect the run at {path}.`(path)
export findings
""",
    "32 team-agents": TEAM,
}

SEED: Final = (
    """\
# These run SEQUENTIALLY (not in parallel)
a = @agent1 `Task A.`(())
b = @agent1 `Task B.`(())
c = @agent1 `Task C.`(())

# This runs in PARALLEL
results = pmap([x, y, z], process)
""",
    """\
research = @researcher `Research topic.`(topic)
report = @writer `Write report.`(research)   # research is a ref
""",
    "@notifier `Send alert.`(data)   # no variable assigned\n",
    """\
agent reader(
  model="haiku",
  permissions=perm(read=[".vvm/runs/**"], write=[], bash="deny", network="deny")
)

research = @researcher `Research quantum computing.`(topic)

# Explicitly pull excerpts into context
excerpts = @reader `Extract the 3 most relevant quotes.`(research)
""",
    """\
match result:
  case error(kind="timeout"):
    result = @backup `Fallback.`(request)
  case error(_):
    result = @backup `Generic fallback.`(request)
  case _:
    pass
""",
    """\
try:
  if ?`invalid`(data):
    raise "Invalid input"
except as err:
  @logger `Log error.`(err)
""",
    "@writer `Process this.`(data)  # data is the input\n",
    "with input data:\n  @writer `Process this.`()    # uses it == data\n",
    "@writer `Start fresh.`(())     # explicit empty input\n",
    "@writer `Summarize: {}`(data)  # {} becomes document summary\n",
    'topic = "AI safety"\n@writer `Research {topic}.`(data)  # {topic} becomes "AI safety"\n',
)
"""`agent` and `input` are reserved words, so that the names of some were changed (L10)."""

SEED_VARIABLES: Final = frozenset({"data", "process", "request", "result", "topic", "x", "y", "z"})
SEED_AGENTS: Final = frozenset({"agent1", "backup", "logger", "notifier", "researcher", "writer"})
