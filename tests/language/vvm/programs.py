"""Valid programs: the tour of docs/reference/vvm.md 2, and the programs of the founding documents."""

from __future__ import annotations

from typing import Final

TOUR: Final = """\
agent scribe(model="small", prompt="Be brief.", memory={scope: "project", key: "log:1"},)

def note(item):
  text = @scribe `Note on {item.title}: {}`(item, retry=1, memory_mode="fresh")
  return {title: item.title, text: text}

notes = pmap([{title: "A"}, {title: "B"}], note)
match notes:
  case error(kind="timeout"):
    notes = []
  case error(e):
    raise "notes failed"
  case _:
    # keep them
export notes
"""

PROGRAMS: Final[dict[str, str]] = {
    "tour": TOUR,
    "pmap": '''\
agent worker(model="haiku")
def process(item):
  return @worker `Process.`(item)
x = 1
y = 2
z = 3
# These run one after the other
a = @worker `Task A.`(())
b = @worker `Task B.`(())

# This runs in parallel
results = pmap([x, y, z], process)
export results
''',
    "references": '''\
agent researcher(model="sonnet")
agent writer(model="opus", prompt="""Write well.

No "filler"; a `backtick` is text here, and so is # this.""")
agent reader(
  model="haiku",
  permissions=perm(read=[".vvm/runs/**"], write=[], bash="deny", network="deny")
)
topic = "AI safety"
research = @researcher `Research {topic}.`(topic)
report = @writer `Write report.`(research)   # research is a ref
excerpts = @reader `Extract the 3 most relevant quotes.`(research)
export excerpts
export report
''',
    "errors": '''\
agent backup(model="haiku")
agent logger(model="haiku")
request = {id: 7, from: "Ada", "due date": "today"}
result = { error: { kind: "timeout", message: "late" } }
match result:
  case error(kind="timeout"):
    result = @backup `Fallback.`(request)
  case error(_):
    result = @backup `Generic fallback.`(request)
  case ?`polite refusal`:
    tone = "apologise"
  case _:
    pass
try:
  if ?`invalid`(request):
    raise "Invalid input"
  elif result.error.kind == "late" or not (request["due date"] != "now") and 3 - 1 >= 2:
    raise
  else:
    pass
except as err:
  @logger `Log error.`(err)
finally:
  done = true
export result
''',
    "inputs": '''\
agent a(model="haiku")
data = [1, 2.5, true, false, (), "x"]
@a `Process this.`(data)  # data is the input
with input data:
  @a `Process this.`()    # uses it == data
  with input it[0]:
    inner = @a `Deeper: {} and {{literal}} and a \\` tick`()
@a `Start fresh.`(())     # explicit empty input
for x in range(len(data)):
  if x == 3:
    break
  while x < 2:
    x = x + 1
    continue
''',
    "agents": '''\
import "search" from "npm:search"
import "files" from "./skills/files"
from "./team.vvm" import review
from "./team.vvm" import @lead as boss
agent base(model="sonnet", skills=["search", "files",], budget={unit: "usd", most: [1, 2]})
experts = [
  base.with(prompt="Be careful."),  # no @ needed
  @base.with(model="opus").with(permissions={network: "allow"}),
  @{model="haiku", prompt="anonymous"},
  @{},
]
def ask(expert, question):
  def twice(_):
    return @expert `Answer: {question}`(
      question,
      timeout="90s",
    )
  return map(range(2), twice)
answers = ask(experts[0], "why?") + ask(expert=experts[1], question="how?",)
quick = @{model="haiku"} `Say hello to
{answers}`(answers)
export pack(answers, quick=quick)
export @boss
export review
''',
    "choices": '''\
agent w(model="opus")
draft = @w `Draft.`()
choose draft by ?`how good is it` as verdict:
  option "good":
    pass
  option "bad":
    draft = @w `Mend {verdict}.`(draft)
constrain draft(attempts=2, time="5m"):
  require ?`has a title`
  require ?`is short`
constrain draft():
  require ?`is kind`
def finish():
  return
''',
    "nothing": "",
    "comments": "# only\n\n   # comments\n",
}  # fmt: skip
