"""`prose help`: the commands and the language on one page."""

from __future__ import annotations

import click

TEXT = """\
prose: workflows of commands, agents and people, in plain text

Commands
  prose run FILE              run a program, a notebook or a bundled example
  prose compile FILE...       check programs; nothing is run
  prose fmt FILE...           print the canonical form
  prose check FILE            which conditions can be decided without a model
  prose gates                 what waits for a decision; prose gate approve|reject|log
  prose explain CODE          what an error code (E004) or a section (3.7) of the reference means
  prose examples [NAME]       bundled examples: list them, or print one
  prose install, prose doctor the Jupyter kernel: register it, find out why it does not start
  prose update                bring an old .prose directory up to date

The language
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


@click.command("help", short_help="The commands and the language on one page.")
@click.argument("command", required=False)
@click.pass_context
def help_(context: click.Context, command: str | None) -> None:
    """Show the commands and the language on one page, or the options of one COMMAND."""
    if command is None:
        click.echo(TEXT, nl=False)
        return
    group = context.find_root().command
    assert isinstance(group, click.Group)
    found = group.get_command(context, command)
    if found is None:
        raise click.UsageError(f"no such command: {command}")
    with click.Context(found, info_name=command, parent=context.find_root()) as inner:
        click.echo(found.get_help(inner))
