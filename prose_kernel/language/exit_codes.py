"""Finds shell commands whose exit code may hide a failure inside them (docs/reference/exec-and-tasks.md 2.6).

`pytest | tail` and `make; echo done` exit with 0 even if `pytest` or `make` fails. The text is parsed as by a shell, as
far as that matters here: quotes, comments, here-documents, groups, substitutions, and scripts given as an argument
(`sh -c '...'`). A text that cannot be parsed counts as hiding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

LONGEST: Final = 20_000
"""The longest text that is parsed, in characters; a longer one counts as hiding if it has more than one command."""
_DEEPEST: Final = 20

_ONE = re.compile(r"[^|;&\n`(!]*")
_BLANK = re.compile(r"(?:[ \t\r]|\\\n)+|#[^\n]*")
_REDIRECT = re.compile(r"\d*(?:&>>?|[<>]&(?:\d+|-)?|>\||<>|>>|<<<|<<-?|<(?!\()|>(?!\())")
_OPERATOR = re.compile(r"\|\||&&|\|&|;;&?|;&|[|;&\n()]")
_PLAIN = re.compile(r"[^\s|&;()<>\"'`$\\]+")
_ARITHMETIC = re.compile(r"\((?!.*\w\s+[\w/.$\"'])[^;\n]*\)")
_ASSIGNMENT = re.compile(r"\w+\+?=.*", re.DOTALL)
_SHELL = re.compile(r"(?:.*/)?(?:ba|da|z|k|mk|a)?sh")

_COMPOUND: Final = frozenset(("if", "for", "while", "until", "case", "select", "function", "coproc", "trap", "!", "[["))
_PREFIX: Final = frozenset(("time", "command", "builtin", "exec", "nohup", "sudo", "env"))
_SET_UP: Final = frozenset(
    ("set", "export", "unset", "umask", "ulimit", "shopt", "echo", "printf", ":", "true", "sleep")
)
_WRITES: Final = frozenset(("echo", "printf", "yes", ":", "true"))
_IGNORES: Final = frozenset(
    (*_WRITES, "cat", "tee", "export", "declare", "local", "readonly", "typeset", "test", "[", "let", "sleep")
)
"""Commands that succeed even if a substitution in their arguments fails: `echo "$(make)"`."""
_RUNS_TEXT: Final = frozenset(("ssh", "eval", "su", "script", "nix-shell", "watch", "parallel"))


class _Unreadable(Exception):
    """Raised for an unclosed quote or parenthesis, for other text that cannot be parsed, and for too deep nesting."""


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of the shell. `tested`: inside a command before `&&` or `||`, where `set -e` has no effect."""

    pipefail: bool = False
    errexit: bool = False
    tested: bool = False


@dataclass(slots=True)
class _Command:
    """A simple command, or a group (`mark` is `(` or `{`). `operator` is the operator after it, "" at the end.

    `inner` holds the texts of its substitutions, `fed` the texts of its here-documents and here-strings.
    """

    words: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    fed: list[str] = field(default_factory=list)
    mark: str = ""
    group: list[_Command] = field(default_factory=list)
    operator: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.mark or self.inner)

    @property
    def name(self) -> str:
        """The program's file name; "" if there are only assignments."""
        words = (word for word in self.words if not _ASSIGNMENT.fullmatch(word) and word not in _PREFIX)
        return next(words, "").rpartition("/")[2]


def may_hide(command: str, *, pipefail: bool = False) -> bool:
    """Return whether a part of `command` can fail while the shell's exit code is 0.

    `pipefail`: the shell is started with this option, so that pipes outside of nested scripts hide nothing.
    """
    if _ONE.fullmatch(command):
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
    if depth > _DEEPEST:
        return True
    start = 0
    for number, one in enumerate(commands):
        tested = options.tested or next((c.operator for c in commands[number:] if c.operator != "|"), "") in (
            "&&",
            "||",
        )
        if _hides(one, replace(options, tested=tested), depth):
            return True
        following = commands[number + 1] if number + 1 < len(commands) else None
        match one.operator:
            case "&":
                return True
            case "|" if not options.pipefail and not all(_only_writes(c) for c in commands[start : number + 1]):
                return True
            case "||" if following is None or not _fails(following):
                return True
            case ";":
                options = _after(one, options)
                if following is not None and not _ends_at_failure(commands[start : number + 1], options):
                    return True
                start = number + 1
    return False


def _hides(one: _Command, options: _Options, depth: int) -> bool:
    """Return whether one command hides a failure inside itself."""
    if one.mark:
        return _list_hides(one.group, options, depth + 1)
    first = next((word for word in one.words if word not in _PREFIX), "")
    if first in _COMPOUND or (one.name == "find" and ";" in one.words):
        return True
    if one.inner and one.name in _IGNORES:
        return True
    if one.inner and not one.name:  # an assignment exits with the code of its substitution, which ignores `set -e`
        return len(one.inner) > 1 or _text_hides(one.inner[0], replace(options, errexit=False), depth + 1)
    return any(_text_hides(text, given, depth + 1) for text, given in _scripts(one))


def _scripts(one: _Command) -> Iterator[tuple[str, _Options]]:
    """Yield the texts in the arguments that another shell runs, with the options of that shell."""
    if one.name in _RUNS_TEXT:
        yield from ((word, _Options()) for word in one.words if not _ONE.fullmatch(word))
    shell = next((n for n, word in enumerate(one.words) if _SHELL.fullmatch(word)), None)
    if shell is None:
        return
    given = _Options()
    arguments = one.words[shell + 1 :]
    for number, word in enumerate(arguments):
        given = _switched(given, arguments, number)
        if re.fullmatch(r"-\w*c", word) and number + 1 < len(arguments):
            yield arguments[number + 1], given
            return
    yield from ((text, given) for text in one.fed)


def _after(one: _Command, options: _Options) -> _Options:
    """Return the options after a command such as `set -euo pipefail`."""
    if one.words[:1] == ["set"]:
        for number in range(1, len(one.words)):
            options = _switched(options, one.words, number)
    return options


def _switched(options: _Options, words: list[str], number: int) -> _Options:
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


def _ends_at_failure(part: list[_Command], options: _Options) -> bool:
    """Return whether a failure in `part`, which ends at a `;`, keeps the commands after it from running."""
    if all(_sets_up(one) for one in part):
        return True
    last = part[-1]
    if len(part) > 1 and part[-2].operator == "||":
        return _fails(last) and last.mark != "(" and last.words[:1] != ["false"]
    return options.errexit and not options.tested and all(map(_is_plain, part))


def _is_plain(one: _Command) -> bool:
    """Return whether `set -e` ends the shell if the command fails: no `&&` is after it or inside its group."""
    return one.operator in ("", "|", ";") and all(map(_is_plain, one.group))


def _sets_up(one: _Command) -> bool:
    name = next(iter(one.words), "")
    return not one.inner and not one.mark and (name in _SET_UP or not one.name)


def _only_writes(one: _Command) -> bool:
    return one.name in _WRITES and not one.inner


def _fails(one: _Command) -> bool:
    """Return whether a command after `||` certainly fails."""
    if one.mark:
        before = one.group[:-1]
        last = one.group[-1] if one.group else _Command()
        return all(c.operator == ";" for c in before) and _exits(last)
    return one.words in (["false"], ["exit"], ["exit", "$?"]) or _exits(one)


def _exits(one: _Command) -> bool:
    return one.words[:1] in (["exit"], ["return"]) and bool(re.fullmatch(r"0*[1-9]\d*", "".join(one.words[1:])))


# ---------------------------------------------------------------- reading


class _Reader:
    """Parses a text into commands; raises `_Unreadable`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._waiting: list[tuple[str, bool, _Command]] = []

    def commands(self, closing: str = "", depth: int = 0) -> list[_Command]:
        if depth > _DEEPEST:
            raise _Unreadable
        found: list[_Command] = []
        one = _Command()
        while self._at < len(self._text):
            if blank := _BLANK.match(self._text, self._at):
                self._at = blank.end()
            elif redirect := _REDIRECT.match(self._text, self._at):
                self._redirect(redirect, one)
            elif operator := _OPERATOR.match(self._text, self._at):
                self._at = operator.end()
                sign = operator[0]
                if sign == ")":
                    if closing != ")":
                        raise _Unreadable
                    return _ended(found, one)
                if sign == "(":
                    one.mark, one.group = "(", self.commands(")", depth + 1)
                    continue
                if sign == "\n":
                    self._skip_documents()
                one = self._separated(found, one, sign)
            else:
                word = self._word(one)
                if word == "{" and one.is_empty:
                    one.mark, one.group = "{", self.commands("}", depth + 1)
                elif word == "}" and one.is_empty and closing == "}":
                    return _ended(found, one)
                else:
                    one.words.append(word)
        if closing:
            raise _Unreadable
        return _ended(found, one)

    @staticmethod
    def _separated(found: list[_Command], one: _Command, sign: str) -> _Command:
        if one.is_empty:
            if sign == "\n" or not found:
                return one  # an empty line, also after an operator
            raise _Unreadable
        one.operator = ";" if sign[0] in ";\n" else "|" if sign == "|&" else sign
        found.append(one)
        return _Command()

    def _redirect(self, match: re.Match[str], one: _Command) -> None:
        self._at = match.end()
        sign = match[0].lstrip("0123456789")
        if sign[:2] in (">&", "<&") and len(sign) > 2:
            return  # `2>&1` has its target
        if blank := re.compile(r"[ \t]*").match(self._text, self._at):
            self._at = blank.end()
        if self._at >= len(self._text) or _OPERATOR.match(self._text, self._at):
            raise _Unreadable
        target = self._word(one)
        if sign in ("<<", "<<-"):
            self._waiting.append((target, sign == "<<-", one))
        elif sign == "<<<":
            one.fed.append(target)

    def _skip_documents(self) -> None:
        """Read the here-documents that the line before announces."""
        for end, tabs, one in self._waiting:
            lines: list[str] = []
            while True:
                if self._at >= len(self._text):
                    break
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                line = self._text[self._at : stop]
                self._at = stop + 1
                if (line.lstrip("\t") if tabs else line) == end:
                    break
                lines.append(line)
            one.fed.append("\n".join(lines))
        self._waiting.clear()
        self._at = min(self._at, len(self._text))

    def _word(self, one: _Command) -> str:
        """Return the next word without its quotes; the texts of its substitutions are added to the command."""
        text, parts, begin = self._text, [], self._at
        while self._at < len(text):
            if plain := _PLAIN.match(text, self._at):
                parts.append(plain[0])
                self._at = plain.end()
                continue
            sign = text[self._at]
            if sign in "<>" and text[self._at + 1 : self._at + 2] == "(":
                one.inner.append(self._substitution())
            elif sign.isspace() or sign in "|&;()<>":
                break
            else:
                parts.append(self._quoted(sign, one))
        if self._at == begin:
            raise _Unreadable
        return "".join(parts)

    def _quoted(self, sign: str, one: _Command) -> str:
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
                return self._double(one)
            case "`":
                match = re.compile(r"`((?:\\.|[^`\\])*)`", re.DOTALL).match(text, self._at)
                if match is None:
                    raise _Unreadable
                self._at = match.end()
                one.inner.append(re.sub(r"\\([`$\\])", r"\1", match[1]))
                return ""
            case _:
                return self._dollar(one)

    def _dollar(self, one: _Command) -> str:
        if self._text.startswith("$(", self._at):
            inner = self._substitution()
            if _ARITHMETIC.fullmatch(inner):
                return "0"
            one.inner.append(inner)
            return ""
        if self._text.startswith("${", self._at):
            begin, end = self._at, self._text.find("}", self._at)
            if end < 0 or "`" in self._text[begin:end] or "$(" in self._text[begin:end]:
                raise _Unreadable
            self._at = end + 1
            return self._text[begin : self._at]
        self._at += 1
        return "$"

    def _double(self, one: _Command) -> str:
        text = self._text
        parts: list[str] = []
        self._at += 1
        while self._at < len(text):
            sign = text[self._at]
            if sign == '"':
                self._at += 1
                return "".join(parts)
            if sign == "\\":
                parts.append(
                    text[self._at + 1 : self._at + 2]
                    if text[self._at + 1 : self._at + 2] in '$`"\\'
                    else text[self._at : self._at + 2]
                )
                self._at += 2
            elif sign in "`$":
                parts.append(self._quoted(sign, one))
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


def _ended(found: list[_Command], one: _Command) -> list[_Command]:
    if not one.is_empty:
        found.append(one)
    elif found and found[-1].operator in ("&&", "||", "|"):
        raise _Unreadable
    elif found and found[-1].operator == ";":
        found[-1].operator = ""
    return found
