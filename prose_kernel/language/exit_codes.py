"""Finds shell commands whose exit code may hide a failure inside them (docs/reference/exec-and-tasks.md 2.6).

`pytest | tail` and `make; echo done` exit with 0 even if `pytest` or `make` fails. The text is parsed as by a shell, as
far as that matters here: quotes, comments, here-documents, groups, substitutions, and scripts given as an argument
(`sh -c '...'`). A text that cannot be parsed counts as hiding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from prose_kernel.language.structs import replace

LONGEST: Final = 20_000
"""The longest text that is parsed, in characters; a longer one counts as hiding if it has more than one command."""
_MAX_DEPTH: Final = 20

_SINGLE_COMMAND = re.compile(r"[^|;&\n`(!]*")
_BLANK = re.compile(r"(?:[ \t\r]|\\\n)+|#[^\n]*")
_REDIRECT = re.compile(r"\d*(?:&>>?|[<>]&(?:\d+|-)?|>\||<>|>>|<<<|<<-?|<(?!\()|>(?!\())")
_OPERATOR = re.compile(r"\|\||&&|\|&|;;&?|;&|[|;&\n()]")
_PLAIN = re.compile(r"[^\s|&;()<>\"'`$\\]+")
_ARITHMETIC = re.compile(r"\((?!.*\w\s+[\w/.$\"'])[^;\n]*\)")
_ASSIGNMENT = re.compile(r"\w+\+?=.*", re.DOTALL)
_SHELL = re.compile(r"(?:.*/)?(?:ba|da|z|k|mk|a)?sh")

_COMPOUND: Final = frozenset(("if", "for", "while", "until", "case", "select", "function", "coproc", "trap", "!", "[["))
_PREFIX: Final = frozenset(("time", "command", "builtin", "exec", "nohup", "sudo", "env"))
_SETUP_COMMANDS: Final = frozenset(
    ("set", "export", "unset", "umask", "ulimit", "shopt", "echo", "printf", ":", "true", "sleep")
)
_OUTPUT_COMMANDS: Final = frozenset(("echo", "printf", "yes", ":", "true"))
_IGNORE_SUBSTITUTIONS: Final = frozenset(
    (*_OUTPUT_COMMANDS, "cat", "tee", "export", "declare", "local", "readonly", "typeset", "test", "[", "let", "sleep")
)
"""Commands whose exit code does not depend on that of a substitution in their arguments: `echo "$(make)"`."""
_RUN_THEIR_ARGUMENTS: Final = frozenset(("ssh", "eval", "su", "script", "nix-shell", "watch", "parallel"))


class _Unreadable(Exception):
    """Raised for an unclosed quote or parenthesis, for other text that cannot be parsed, and for too deep nesting."""


class _Options(Struct, frozen=True):
    """Options of the shell. `tested`: inside a command before `&&` or `||`, where `set -e` has no effect."""

    pipefail: bool = False
    errexit: bool = False
    tested: bool = False


class _Command(Struct):
    """A simple command, or a group (`mark` is `(` or `{`). `operator` is the operator after it, "" at the end.

    `substitutions` holds the texts of its substitutions, `stdin` the texts of its here-documents and here-strings.
    """

    words: list[str] = field(default_factory=list)
    substitutions: list[str] = field(default_factory=list)
    stdin: list[str] = field(default_factory=list)
    mark: str = ""
    group: list[_Command] = field(default_factory=list)
    operator: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.mark or self.substitutions)

    @property
    def name(self) -> str:
        """The program's file name; "" if there are only assignments."""
        words = (word for word in self.words if not _ASSIGNMENT.fullmatch(word) and word not in _PREFIX)
        return next(words, "").rpartition("/")[2]


def may_hide(command: str, *, pipefail: bool = False) -> bool:
    """Return whether a part of `command` can fail while the shell's exit code is 0.

    `pipefail`: the shell is started with this option, so that pipes outside of nested scripts hide nothing.
    """
    if _SINGLE_COMMAND.fullmatch(command):
        return False
    if len(command) > LONGEST:
        return True
    return _text_hides(command, _Options(pipefail), 0)


def _text_hides(text: str, options: _Options, depth: int) -> bool:
    try:
        return _list_hides(_Reader(text).commands(), options, depth)
    except _Unreadable:
        return True


def _list_hides(commands: list[_Command], options: _Options, depth: int) -> bool:
    """Return whether a list of commands hides a failure; `set` changes the options for the commands after it."""
    if depth > _MAX_DEPTH:
        return True
    start = 0
    for number, command in enumerate(commands):
        after_pipeline = next((c.operator for c in commands[number:] if c.operator != "|"), "")
        tested = options.tested or after_pipeline in ("&&", "||")
        if _hides(command, replace(options, tested=tested), depth):
            return True
        following = commands[number + 1] if number + 1 < len(commands) else None
        match command.operator:
            case "&":
                return True
            case "|" if not options.pipefail:
                before = commands[start : number + 1]
                if not all(c.name in _OUTPUT_COMMANDS and not c.substitutions for c in before):
                    return True
            case "||" if following is None or not _always_fails(following):
                return True
            case ";":
                for index in range(1, len(command.words)) if command.words[:1] == ["set"] else ():
                    options = _with_option(options, command.words, index)
                if following is not None and not _stops_at_failure(commands[start : number + 1], options):
                    return True
                start = number + 1
    return False


def _hides(command: _Command, options: _Options, depth: int) -> bool:
    """Return whether one command hides a failure inside itself."""
    if command.mark:
        return _list_hides(command.group, options, depth + 1)
    first = next((word for word in command.words if word not in _PREFIX), "")
    if first in _COMPOUND or (command.name == "find" and ";" in command.words):
        return True
    inner = command.substitutions
    if inner and command.name in _IGNORE_SUBSTITUTIONS:
        return True
    if inner and not command.name:  # an assignment exits with the code of its substitution, which ignores `set -e`
        return len(inner) > 1 or _text_hides(inner[0], replace(options, errexit=False), depth + 1)
    return any(_text_hides(text, given, depth + 1) for text, given in _scripts(command))


def _scripts(command: _Command) -> Iterator[tuple[str, _Options]]:
    """Yield the texts in the arguments that another shell runs, with the options of that shell."""
    if command.name in _RUN_THEIR_ARGUMENTS:
        yield from ((word, _Options()) for word in command.words if not _SINGLE_COMMAND.fullmatch(word))
    shell = next((n for n, word in enumerate(command.words) if _SHELL.fullmatch(word)), None)
    if shell is None:
        return
    given = _Options()
    arguments = command.words[shell + 1 :]
    for number, word in enumerate(arguments):
        given = _with_option(given, arguments, number)
        if re.fullmatch(r"-\w*c", word) and number + 1 < len(arguments):
            yield arguments[number + 1], given
            return
    yield from ((text, given) for text in command.stdin)


def _with_option(options: _Options, words: list[str], number: int) -> _Options:
    """Return the options after the word at index `number` in the arguments of `set` or of a shell."""
    word = words[number]
    if not re.fullmatch(r"[-+]\w+", word):
        return options
    on = word[0] == "-"
    if "e" in word:
        options = replace(options, errexit=on)
    following = words[number + 1] if word[-1] == "o" and number + 1 < len(words) else ""
    if following == "pipefail":
        options = replace(options, pipefail=on)
    return replace(options, errexit=on) if following == "errexit" else options


def _stops_at_failure(part: list[_Command], options: _Options) -> bool:
    """Return whether a failure in `part`, which ends at a `;`, keeps the commands after it from running."""
    if all(_sets_up(command) for command in part):
        return True
    last = part[-1]
    if len(part) > 1 and part[-2].operator == "||":
        return _always_fails(last) and last.mark != "(" and last.words[:1] != ["false"]
    return options.errexit and not options.tested and all(map(_obeys_errexit, part))


def _obeys_errexit(command: _Command) -> bool:
    """Return whether `set -e` ends the shell if the command fails: no `&&`, `||` or `&` is after it or in its group."""
    return command.operator in ("", "|", ";") and all(map(_obeys_errexit, command.group))


def _sets_up(command: _Command) -> bool:
    name = next(iter(command.words), "")
    return not command.substitutions and not command.mark and (name in _SETUP_COMMANDS or not command.name)


def _always_fails(command: _Command) -> bool:
    """Return whether a command after `||` certainly fails."""
    if command.mark:
        before = command.group[:-1]
        last = command.group[-1] if command.group else _Command()
        return all(c.operator == ";" for c in before) and _exits_with_failure(last)
    return command.words in (["false"], ["exit"], ["exit", "$?"]) or _exits_with_failure(command)


def _exits_with_failure(command: _Command) -> bool:
    return command.words[:1] in (["exit"], ["return"]) and bool(re.fullmatch(r"0*[1-9]\d*", "".join(command.words[1:])))


# ---------------------------------------------------------------- reading


class _Reader:
    """Parses a text into commands; raises `_Unreadable`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._pending_documents: list[tuple[str, bool, _Command]] = []

    def commands(self, closing: str = "", depth: int = 0) -> list[_Command]:
        if depth > _MAX_DEPTH:
            raise _Unreadable
        found: list[_Command] = []
        command = _Command()
        while self._at < len(self._text):
            if blank := _BLANK.match(self._text, self._at):
                self._at = blank.end()
            elif redirect := _REDIRECT.match(self._text, self._at):
                self._redirect(redirect, command)
            elif operator := _OPERATOR.match(self._text, self._at):
                self._at = operator.end()
                sign = operator[0]
                if sign == ")":
                    if closing != ")":
                        raise _Unreadable
                    return _completed(found, command)
                if sign == "(":
                    command.mark, command.group = "(", self.commands(")", depth + 1)
                    continue
                if sign == "\n":
                    self._read_documents()
                command = self._end_command(found, command, sign)
            else:
                word = self._word(command)
                if word == "{" and command.is_empty:
                    command.mark, command.group = "{", self.commands("}", depth + 1)
                elif word == "}" and command.is_empty and closing == "}":
                    return _completed(found, command)
                else:
                    command.words.append(word)
        if closing:
            raise _Unreadable
        return _completed(found, command)

    @staticmethod
    def _end_command(found: list[_Command], command: _Command, sign: str) -> _Command:
        """Add a command, which the operator `sign` ends, to `found`; return the next command."""
        if command.is_empty:
            if sign == "\n" or not found:
                return command  # an empty line, also after an operator
            raise _Unreadable
        command.operator = ";" if sign[0] in ";\n" else "|" if sign == "|&" else sign
        found.append(command)
        return _Command()

    def _redirect(self, match: re.Match[str], command: _Command) -> None:
        self._at = match.end()
        sign = match[0].lstrip("0123456789")
        if sign[:2] in (">&", "<&") and len(sign) > 2:
            return  # `2>&1` has its target
        if blank := re.compile(r"[ \t]*").match(self._text, self._at):
            self._at = blank.end()
        if self._at >= len(self._text) or _OPERATOR.match(self._text, self._at):
            raise _Unreadable
        target = self._word(command)
        if sign in ("<<", "<<-"):
            self._pending_documents.append((target, sign == "<<-", command))
        elif sign == "<<<":
            command.stdin.append(target)

    def _read_documents(self) -> None:
        """Read the here-documents that the line before announces."""
        for end, tabs, command in self._pending_documents:
            lines: list[str] = []
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                line = self._text[self._at : stop]
                self._at = stop + 1
                if (line.lstrip("\t") if tabs else line) == end:
                    break
                lines.append(line)
            command.stdin.append("\n".join(lines))
        self._pending_documents.clear()
        self._at = min(self._at, len(self._text))

    def _word(self, command: _Command) -> str:
        """Return the next word without its quotes; the texts of its substitutions are added to the command."""
        text, parts, begin = self._text, [], self._at
        while self._at < len(text):
            if plain := _PLAIN.match(text, self._at):
                parts.append(plain[0])
                self._at = plain.end()
                continue
            sign = text[self._at]
            if sign in "<>" and text[self._at + 1 : self._at + 2] == "(":
                command.substitutions.append(self._substitution())
            elif sign.isspace() or sign in "|&;()<>":
                break
            else:
                parts.append(self._quoted(sign, command))
        if self._at == begin:
            raise _Unreadable
        return "".join(parts)

    def _quoted(self, sign: str, command: _Command) -> str:
        text = self._text
        match sign:
            case "\\":
                self._at += 2
                return "" if text[self._at - 1 : self._at] == "\n" else text[self._at - 1 : self._at]
            case "'":
                begin, self._at = self._at + 1, text.find("'", self._at + 1) + 1
                if not self._at:
                    raise _Unreadable
                return text[begin : self._at - 1]
            case '"':
                return self._double(command)
            case "`":
                match = re.compile(r"`((?:\\.|[^`\\])*)`", re.DOTALL).match(text, self._at)
                if match is None:
                    raise _Unreadable
                self._at = match.end()
                command.substitutions.append(re.sub(r"\\([`$\\])", r"\1", match[1]))
                return ""
            case _:
                return self._dollar(command)

    def _dollar(self, command: _Command) -> str:
        if self._text.startswith("$(", self._at):
            inner = self._substitution()
            if _ARITHMETIC.fullmatch(inner):
                return "0"
            command.substitutions.append(inner)
            return ""
        if self._text.startswith("${", self._at):
            begin, end = self._at, self._text.find("}", self._at)
            if end < 0 or "`" in self._text[begin:end] or "$(" in self._text[begin:end]:
                raise _Unreadable
            self._at = end + 1
            return self._text[begin : self._at]
        self._at += 1
        return "$"

    def _double(self, command: _Command) -> str:
        text = self._text
        parts: list[str] = []
        self._at += 1
        while self._at < len(text):
            sign = text[self._at]
            if sign == '"':
                self._at += 1
                return "".join(parts)
            if sign == "\\":
                escaped = text[self._at + 1 : self._at + 2]
                parts.append(escaped if escaped in '$`"\\' else f"\\{escaped}")
                self._at += 2
            elif sign in "`$":
                parts.append(self._quoted(sign, command))
            else:
                stop = re.compile(r'["\\`$]').search(text, self._at)
                end = stop.start() if stop else len(text)
                parts.append(text[self._at : end])
                self._at = end
        raise _Unreadable

    def _substitution(self) -> str:
        """Return the text between `$(` or `<(` and its `)`."""
        inner = _Reader(self._text)
        inner._at = begin = self._at + 2
        inner.commands(")")
        self._at = inner._at
        return self._text[begin : self._at - 1]


def _completed(found: list[_Command], command: _Command) -> list[_Command]:
    """Return `found` with the last command; a final `;` is dropped, any other final operator is unreadable."""
    if not command.is_empty:
        found.append(command)
    elif found and found[-1].operator in ("&&", "||", "|"):
        raise _Unreadable
    elif found and found[-1].operator == ";":
        found[-1].operator = ""
    return found
