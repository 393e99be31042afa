"""Programs for tests of cost and for `benchmarks/workflows.py`."""

GUIDE = "You write for visitors of a museum. Short sentences. Nothing that the facts do not say."
CHAINED = """\
agent writer:
  prompt: "{guide}"{tools}
let draft = session: writer
  prompt: "Write a page about the lighthouse."
let notes = session: writer
  prompt: "What is weak in this page?"
  context: draft
output page = session: writer
  prompt: "Write the page again, with the notes in mind."
  context: {{ draft, notes }}
"""
