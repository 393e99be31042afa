"""The forms of a clause: the tests for words about one binding (docs/reference/judge-rules.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prose_kernel.judging import facts
from prose_kernel.judging.condition_tree import Clause, Combination, Condition, Negation, OtherBinding, Unparsed
from prose_kernel.judging.value_tests import (
    COMPARE,
    DIGITS,
    FEWER,
    LITERAL,
    LITERALS,
    MORE,
    NUMERAL,
    TESTS,
    comparison,
    equal_or,
    is_true,
)

_NAME = r"[^\W\d]\w*(?:-\w+)*"
PATH = rf"{_NAME}(?:\.{_NAME}|\[\d+\])*"
_EXIT = r"exit[ -](?:code|status)"
_SUBJECT = re.compile(
    rf"(?:(?P<all>[Aa]ll\s+(?:(?:of\s+)?the\s+)?)|(?:[Tt]he|[Tt]his|[Tt]hat)\s+)?"
    rf"(?:(?P<of>{_EXIT}\s+of\s+(?:the\s+)?|(?P<number_of>(?:number|length|count)\s+of\s+(?:the\s+)?)"
    rf"|(?P<out_of>(?:output|stdout)\s+of\s+(?:the\s+)?))?`?(?P<path>{PATH})`?"
    rf"(?:(?P<exit>(?:'s|’s)?\s+{_EXIT})|(?P<out>(?:'s|’s)?\s+(?:output|stdout)))?"
    rf"|(?P<number>[-+]?\d+(?:\.\d+)?))(?=[\s=<>!≥≤≠])\s*"
)
_NOTS = r"(?P<not>\s+not|n't|n’t)?\s+"
_DONTS = r"(?P<not>(?:does|do|did)(?:\s+not|n't|n’t)\s+)?"
_N = rf"(?P<n>{NUMERAL})"
_LENGTHS = r"longer\s+than|shorter\s+than"
_WORDS = "|".join(
    word.replace(" ", r"\s+")
    for word in sorted(COMPARE, key=len, reverse=True)
    if word[0].isalpha() and word not in ("equal", "exceed", "longer than", "shorter than")
)
_SIGNS = r"==|!=|>=|<=|≥|≤|≠|>|<|="
_VERSIONED = frozenset((
    "version", "versions", "ver", "release", "releases", "tag", "semver", "kernel", "os", "sdk", "python", "node",
    "nodejs", "ruby", "java", "jdk", "jre", "go", "golang", "rust", "rustc", "gcc", "clang", "llvm", "php", "perl",
    "npm", "yarn", "pnpm", "pip", "docker", "kubernetes", "django", "flask", "rails", "react", "vue", "angular",
    "postgres", "postgresql", "mysql", "mariadb", "sqlite", "redis", "nginx", "ubuntu", "debian", "fedora", "linux",
    "macos", "ios", "android", "windows", "glibc", "openssl", "cuda", "bash", "zsh", "git", "helm", "terraform",
    "ansible", "numpy", "pandas", "torch", "pytorch", "tensorflow", "chrome", "firefox", "dotnet", "kotlin", "scala",
    "swift", "typescript", "ts", "cmake", "maven", "gradle", "spark", "kafka", "jupyter",
))  # fmt: skip
"""Names whose numbers are versions: for them, 3.12 is more than 3.9."""
_ENDED = r"exit(?:ed|s)|finish(?:ed|es)|complet(?:ed|es)|ended|terminated"
_THE_WORD = r"(?P<word>\s+the\s+(?:exact\s+)?(?:word|text|string|phrase))?"
_UNIT = r"(?P<unit>word|line|character|item|entr(?:y|ie)|element)s?"
_OP = rf"(?P<op>{_WORDS}|{_SIGNS})"
_THERE = re.compile(rf"[Tt]here\s+(?:is|are){_NOTS}(?:{_OP}\s+)?{_N}\s+{_UNIT}\s+in\s+(?:the\s+)?`?(?P<path>{PATH})`?")
_HOW_MANY = re.compile(
    rf"(?:[Tt]he\s+)?(?:number|count)\s+of\s+{_UNIT}\s+(?:in|of)\s+(?:the\s+)?`?(?P<path>{PATH})`?"
    rf"(?:\s+(?:is|are)(?P<not>\s+not)?)?\s*(?:{_OP}\s*)?{_N}"
)
_IN = re.compile(
    rf"(?P<lit>{LITERAL})\s+is(?P<not>\s+not|n't)?\s+(?:in|among|one of)\s+(?:the\s+)?`?(?P<path>{PATH})`?"
)
_CHAIN = re.compile(
    rf"(?P<low>{DIGITS})\s*(?P<one><=?|≤)\s*`?(?P<path>{PATH})`?\s*(?P<two><=?|≤)\s*(?P<high>{DIGITS})"
    rf"|(?P<top>{DIGITS})\s*(?P<three>>=?|≥)\s*`?(?P<name>{PATH})`?\s*(?P<four>>=?|≥)\s*(?P<bottom>{DIGITS})"
)
_TRUE = re.compile(rf"(?:[Tt]he\s+)?`?(?P<path>{_NAME}(?:\.{_NAME}|\[\d+\])+)`?")
_FORMS = [(rule, re.compile(pattern)) for rule, pattern in (
    ("empty", rf"(?:is|are){_NOTS}(?:(?:both|all)\s+)?(?P<state>empty|blank)"),
    ("null", rf"(?:is|are){_NOTS}(?:null|None|nil)"),
    ("empty", r"(?P<not>(?:is|are)\s+non-?empty)"),
    ("given", rf"(?:is|are|was|were){_NOTS}(?P<state>specified|given|set|provided|supplied)"),
    ("exit", rf"{_DONTS}(?:both\s+)?(?P<word>succeed|pass|fail)"),
    ("exit", rf"(?:{_ENDED}|ran)\s+(?P<word>successfully)"),
    ("error", rf"(?:{_ENDED})\s+(?:with\s+(?:an\s+)?(?P<word>errors?|failures?)|(?P<un>unsuccessfully))"),
    ("exit", r"(?P<word>indicate)s?\s+(?:a\s+)?(?:test\s+)?failures?"),
    ("exit", r"(?:(?:has|have)(?P<not>\s+not|n't|n’t)?\s+)?(?P<word>succeed|pass|fail)(?:s|es|ed)?"),
    ("exit", rf"(?:is|are){_NOTS}(?P<word>successful|passing|failing)"),
    ("exit", rf"(?:was|were){_NOTS}(?P<word>successful)"),
    (
        "number",
        rf"(?:exit|return|finish|complet|end)(?:ed|s|es)\s+(?:with\s+)?(?:an?\s+)?(?P<exited>)(?:{_EXIT}|code|status)\s+(?:of\s+)?"
        rf"(?:(?P<zero>zero|non-?zero)|{_N})",
    ),
    (
        "number",
        rf"(?:exit(?:ed|s)\s+with|returned|returns|ha[sd]|finished\s+with|ended\s+with)\s+(?:an?\s+)?(?P<exited>)(?:(?P<zero>zero|non-?zero)|{_N})"
        rf"\s+(?:{_EXIT}|code|status)",
    ),
    ("number", rf"exit(?:ed|s)\s+(?:with\s+)?(?P<exited>)(?:(?P<zero>zero|non-?zero)|{_N})"),
    (
        "text",
        rf"{_DONTS}(?:(?P<how>contain|include)s?{_THE_WORD}|(?P<at>start|begin|end)s?\s+with)"
        rf"\s+(?P<lit>{LITERAL}|'[^']*')",
    ),
    ("text", rf"{_DONTS}(?P<how>mention)s?{_THE_WORD}\s+(?P<lit>{LITERAL})"),
    (
        "text",
        rf"{_DONTS}(?:(?P<how>contain|include)s?)\s+(?P<which>(?:either|both|one of|any of|all of)\s+)?"
        rf"(?P<lits>{LITERALS})",
    ),
    ("equal", rf"(?:is|are){_NOTS}(?P<which>(?:either|one of|any of)\s+)?(?P<lits>{LITERALS})"),
    ("number", rf"(?:is|are|lies|falls){_NOTS}between\s+{_N}\s+and\s+(?P<high>{NUMERAL})"),
    ("number", rf"(?:is|are){_NOTS}{_N}\s+or\s+(?P<or>{MORE}|{FEWER})"),
    ("number", rf"{_DONTS}reach(?:es|ed)?\s+(?:at\s+least\s+)?(?P<reach>){_N}"),
    ("sign", rf"(?:is|are){_NOTS}(?P<word>positive|negative)"),
    ("pattern", rf"{_DONTS}match(?:es)?\s+/(?P<re>(?:\\.|[^/\\\n])+)/"),
    ("number", rf"(?:is|are){_NOTS}(?P<op>{_WORDS}|{_SIGNS})\s*{_N}"),
    ("number", rf"(?P<op>{_SIGNS})\s*{_N}"),
    ("number", rf"(?:is|are){_NOTS}{_N}"),
    ("number", rf"{_DONTS}(?P<op>equal|exceed)s?\s+{_N}"),
    ("numbers", rf"(?:is|are){_NOTS}(?P<op>{_WORDS})\s+(?:the\s+)?`?(?P<right>{PATH})`?"),
    ("numbers", rf"{_DONTS}(?P<op>equal|exceed)s?\s+(?:the\s+)?`?(?P<right>{PATH})`?"),
    ("numbers", rf"(?P<op>>=|<=|≥|≤|>|<)\s*(?:the\s+)?`?(?P<right>{PATH})`?"),
    (
        "version",
        rf"(?:(?:is|are){_NOTS}(?P<op>{_WORDS}|{_SIGNS})|(?P<sign>{_SIGNS}))\s*(?P<version>v?\d+(?:\.\d+){{2,}})",
    ),
    ("number", rf"(?:is|are){_NOTS}(?P<zero>zero|non-?zero)"),
    ("count", rf"(?:has|have|contains?|includes?)(?P<not>\s+not|n't|n’t)?\s+(?:(?P<op>{_WORDS})\s+)?{_N}\s+{_UNIT}"),
    (
        "count",
        rf"(?:is|are){_NOTS}(?:(?P<op>{_LENGTHS}|{_WORDS})\s+)?{_N}\s+(?P<unit>word|line|character)s?(?:\s+long)?",
    ),
    ("items", r"(?:has|have|contains?)\s+(?P<not>no)\s+(?:items|entries|elements)"),
    ("equal", rf"(?:is|are){_NOTS}(?P<lit>{LITERAL}|'[^']*')"),
    ("equal", rf"(?P<op>==|!=|≠|=)\s*(?P<lit>{LITERAL}|'[^']*')"),
    ("yes-no", rf"(?:is|are){_NOTS}(?P<yes>yes|no|true|false)"),
    ("yes-no", r"(?P<op>==|!=|≠|=)\s*(?P<yes>yes|no|true|false)"),
    ("word", rf"(?:is|are){_NOTS}(?P<words>[^\W\d][\w -]{{0,60}})"),
    ("word", rf"(?P<op>==|!=|≠|=)\s*(?P<words>(?P<right>{PATH}))"),
)]  # fmt: skip


def clause(text: str) -> Condition:
    """Parse one condition without `and`, `or` and a leading `not`."""
    words = text.strip(" \t\n.,;!?")
    if match := _TRUE.fullmatch(words):
        return Clause(match["path"], "true", is_true)
    if (rewritten := _rewritten(words)) is not None:
        return rewritten
    subject = _SUBJECT.match(words)
    if subject is None:
        return Unparsed(text.strip())
    name = subject["path"] or subject["number"]
    if subject["number_of"]:
        name += ".count"
    elif subject["exit"] or (subject["of"] and not subject["out_of"]):
        name += facts.EXIT_CODE
    rest = words[subject.end() :]
    for rule, form in _FORMS:
        if match := form.fullmatch(rest):
            found = match.groupdict()
            sign = found.get("op") in ("!=", "≠")
            test = TESTS[rule](found)
            if (
                test is None
                or (rule in ("number", "numbers") and _of_versions(name, found.get("right") or ""))
                or (subject["number"] and rule not in ("number", "numbers"))
                or (
                    (subject["out_of"] or subject["out"]) and rule not in ("text", "pattern", "empty", "count", "equal")
                )
                or (subject["all"] and not _of_all(rule, found))
            ):
                break
            if "exited" in found:
                name += facts.EXIT_CODE
            other = OtherBinding(found["right"], comparison(equal_or(found["op"]))) if found.get("right") else None
            lit = found.get("lit") or ""
            name_of = (
                lit[1:-1]
                if lit[:1] == "`" and re.fullmatch(PATH, lit[1:-1])
                else found.get("words") or found.get("state") or ""
            )
            return Clause(name, rule, test, (found.get("not") is not None) != sign, other, name_of, rest)
    return Unparsed(text.strip())


def _rewritten(words: str) -> Condition | None:
    """Return the condition for a different word order, in a known form; None if there is no such form."""
    if match := _CHAIN.fullmatch(words):
        low, one, path, two, high = (match[name] for name in ("low", "one", "path", "two", "high"))
        if path is None:
            high, two, path, one, low = (match[name] for name in ("top", "three", "name", "four", "bottom"))
            return Combination("and", (clause(f"{high} {two} {path}"), clause(f"{path} {one} {low}")))
        return Combination("and", (clause(f"{low} {one} {path}"), clause(f"{path} {two} {high}")))
    if match := _THERE.fullmatch(words) or _HOW_MANY.fullmatch(words):
        asked = clause(f"{match['path']} has {match['op'] or 'exactly'} {match['n']} {match['unit']}s")
        return Negation(asked) if match["not"] else asked
    if match := _IN.fullmatch(words):
        return clause(f"{match['path']} {'does not contain' if match['not'] else 'contains'} {match['lit']}")
    return None


def _of_versions(*names: str) -> bool:
    """Return whether one of the names contains the name of a version, a program or a kernel."""
    parts = (part for name in names for part in re.split(r"[\W_\d]+|(?<=[a-z])(?=[A-Z])", name))
    return any(part.casefold() in _VERSIONED for part in parts)


def _of_all(rule: str, found: Mapping[str, str | None]) -> bool:
    """Return whether `all tests ...` means the same as `tests ...`: only that the command passed. A failed command need
    not have failed in everything."""
    return rule == "exit" and found["not"] is None and not (found["word"] or "").startswith("fail")
