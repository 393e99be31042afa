"""`prose help`: show the commands and OpenProse on one page, VVM on another (`prose help vvm`). `prose explain`: show a
section of the language reference, a word of a language, or a program in plain words."""

from __future__ import annotations

import sys

import click

from prose_kernel.errors import UsageError
from prose_kernel.language.nearest import Nearest, containing, did_you_mean

TEXT = """\
prose: workflows of commands, agents and people, in plain text

Commands
  prose run TARGET            run a program, a notebook, a bundled example, handle/name or an https address
  prose compile FILE...       check programs; nothing is run
  prose fmt FILE...           print the canonical form
  prose check FILE            which conditions can be decided without a model
  prose graph FILE            draw a program; nothing is run
  prose gates                 what waits for a decision; prose gate approve|reject|log
  prose explain CODE          what an error code (E004, V040) or a section (3.7) of the reference means
  prose examples [NAME]       bundled examples: list them, or print one
  prose programs              programs from elsewhere that were agreed to; prose install TARGET adds one
  prose trust [FILE]          agree to code or settings that a session's program has created
  prose install, prose doctor the Jupyter kernel: register it, find out why it does not start
  prose lsp                   serve an editor: findings, completion, names (docs/how-to/editors.md)
  prose update                bring an old .prose directory up to date

OpenProse, in files that end with .prose (the other language, VVM: prose help vvm)
  exec "make test"                        run a shell command
  let log = exec "git log -3"             keep what it printed
  session "Summarise {log}"               ask an agent, with a value inserted
  parallel:                               do several things at once
    a = exec "make lint"
    b = exec "make test"
  for name in ["x", "y"]:                 loops: for, repeat 3, loop until **done** (max: 5)
    exec "echo {name}"
  if **b passed**:                        a condition in words, between two stars
    output result = "green"
  try:                                    errors: try, catch as e, finally, throw
    exec "false"
  catch as e:
    output result = e
  block greet(who):                       reusable steps: do greet("you")
    exec "echo hello {who}"
  gate release:                           stop until a person agrees
    prompt: "Publish?"

From here
  run one       prose run hello
  write one     put `exec "date"` into first.prose, then: prose run first.prose
  learn         prose examples
  explore       jupyter lab, and choose the Prose kernel
"""

VVM = """\
vvm: programs about answers, in plain text that looks like Python

VVM, in files that end with .vvm (the commands, and OpenProse: prose help)
  topic = "the sea"                             strings, numbers, booleans, lists, objects
  agent writer(model="sonnet")                  an agent that can be asked
  draft = @writer `About {topic}`(["tides"])    ask: a text with values inserted, and the input
  match draft:                                  a call that fails gives a value
    case error(problem):
      draft = problem.error.message
    case ?`a poem`:                             a question to the judge
      draft = "no poems"
  short = ?`at most ten words`(draft)           its answer: true or false
  choose draft by ?`the tone` as tone:          the judge picks a label
    option "kind":
      pass
  constrain draft():                            what does not hold gives an error value
    require ?`no exaggeration`
  def good(text, n):                            functions are values
    return ?`easy to read`(text)
  def improve(text, n):
    return @writer `Improve it`(text)
  best = refine(draft, 3, good, improve)        until it is good, at most three times
  sizes = pmap([draft, best], len)              all at the same time
  try:                                          mistakes, and raise "text": try, except, finally
    size = len(draft)
  except as problem:
    size = 0
  from "./team.vvm" import review               functions, values and @agents of another file
  export best                                   what the program gives back

From here
  run one       prose run hello-vvm
  write one     put `export pack(sum=1 + 2)` into first.vvm, then: prose run first.vvm
  learn         prose examples; prose explain vvm 3
  explore       jupyter lab, and choose the VVM kernel, or begin a cell with %%vvm
"""


@click.command("help", short_help="The commands and OpenProse on one page; VVM on another.")
@click.argument("command", required=False)
@click.pass_context
def help_(context: click.Context, command: str | None) -> None:
    """Show commands and OpenProse on one page, VVM on another (`prose help vvm`), or the options of COMMAND."""
    if command in (None, "vvm"):
        click.echo(VVM if command else TEXT, nl=False)
        return
    group = context.find_root().command
    assert isinstance(group, click.Group)
    found = group.resolve_command(context, [command])[1]
    assert found is not None
    with click.Context(found, info_name=command, parent=context.find_root()) as inner:
        click.echo(found.get_help(inner))


# ---------------------------------------------------------------- explain


@click.command(short_help="Explain an error code, a section, a word, or a program.")
@click.argument("wanted", metavar="[PAGE] [CODE|SECTION|WORD|FILE]", nargs=-1, required=True)
def explain(wanted: tuple[str, ...]) -> int:
    """Print a section of the reference: by a code (E004, V001), a number of OpenProse (3.7) or of a page
    (sessions 4.2), or a word (loop, retry, pmap); the outline of a page (vvm). Of a program file, print each statement
    in plain words; nothing is run."""
    from prose_kernel.runs import languages, reference_pages

    words = " ".join(wanted)
    if len(wanted) == 1 and words.endswith(languages.suffixes()):
        return _program(words)
    if words.endswith(".ipynb"):
        from prose_kernel.cli.program_files import is_file
        from prose_kernel.language.text import as_argument, escaped

        if not is_file(words):
            raise UsageError(f"there is no file {escaped(words)}")
        hint = f"%explain as the first line explains a cell; `prose export {as_argument(words)}` makes a program"
        raise UsageError(f"{escaped(words)} is a notebook, not a program", hint=hint)
    found = _word(wanted) or reference_pages.section(words)
    if not sys.stdout.isatty():
        click.echo(found, nl=False)
        return 0
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    console = Console(highlight=False, theme=Theme({"markdown.code": "bold"}))  # readable on light backgrounds, too
    console.print(Markdown(found, hyperlinks=False, code_theme="ansi_dark"))
    return 0


def _program(name: str) -> int:
    from prose_kernel.cli.compile import correct_file
    from prose_kernel.language.source import Source
    from prose_kernel.views.document import plain_text
    from prose_kernel.views.explanation import explained

    compiled = correct_file(name)
    if compiled is None:
        return 1
    shown = explained(compiled.program, Source.of(compiled.text, name), compiled.language)
    click.echo(plain_text(shown))
    return 0


def _word(wanted: tuple[str, ...]) -> str | None:
    """Return the documentation of a word in all languages, or in the one named before it; None for an unknown word, a
    code, a section or a page. Raises `UsageError` if a similar word exists."""
    from prose_kernel.runs import languages, reference_pages
    from prose_kernel.views.bundle import markdown
    from prose_kernel.views.word_help import documentation, entry_of, with_section

    *page, word = wanted
    if len(page) > 1 or reference_pages.is_key(word) or word in reference_pages.pages():
        return None
    asked = [one for one in languages.LANGUAGES.values() if page in ([], [one.name])]
    found = [
        markdown(with_section(documentation(word, entry, one), word, one))
        for one in asked
        if (entry := entry_of(one, word)) is not None
    ]
    known = {name for one in asked for group in one.words() for name in group}
    if not found and (near := Nearest()(word, known) or containing(word, known)):
        raise UsageError(f"there is nothing to explain about {word}", hint=did_you_mean(near))
    return "\n\n".join(found) + "\n" if found else None
