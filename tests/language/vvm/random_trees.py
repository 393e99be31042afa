"""Hypothesis strategies for VVM: trees that the grammar can express, and texts with comments anywhere."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from prose_kernel.language.vvm import tree as t

NAMES = st.sampled_from(["a", "b1", "_", "_y", "item", "pack", "perm", "len", "a_long_name_that_takes_its_room"])
MEMBERS = st.one_of(NAMES, st.sampled_from(["error", "from", "it", "with", "kind"]))
name = NAMES.map(t.Name)
fragment = st.text(st.sampled_from('ab {}"\\\n\t`#?@()é\r\x00'), max_size=12)
prose = fragment.map(lambda text: text.replace("\r", ""))  # of a template; a carriage return has no escape there
string = fragment.map(t.String)
number = st.one_of(st.integers(0, 10**30), st.floats(0, 1e6)).map(t.Number)


@st.composite
def templates(draw: st.DrawFn) -> t.Template:
    parts: list[str | t.Placeholder] = []
    paths = st.one_of(st.just(()), st.tuples(NAMES), st.tuples(NAMES, MEMBERS))
    for part in draw(st.lists(st.one_of(prose, paths.map(t.Placeholder)), max_size=4)):
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        elif part != "":
            parts.append(part)
    if parts and isinstance(parts[-1], str) and parts[-1].endswith("\\"):
        parts[-1] += "."  # no template can end in a backslash
    return t.Template(tuple(parts))


template = templates()
leaf = st.one_of(
    name,
    string,
    number,
    st.sampled_from([t.Unit(), t.It(), t.Boolean(True), t.Boolean(False), t.AgentName("a"), t.AgentName("from")]),
    st.builds(t.Predicate, template, st.none()),
)


def _composite(inner: st.SearchStrategy[t.Expression]) -> st.SearchStrategy[t.Expression]:
    many = st.lists(inner, max_size=4).map(tuple)
    keywords = st.lists(st.builds(t.Keyword, MEMBERS, inner), max_size=3).map(tuple)
    pairs = st.lists(st.builds(t.Pair, st.one_of(MEMBERS, fragment), inner), max_size=3).map(tuple)
    reference = st.one_of(MEMBERS.map(t.AgentName), keywords.map(t.InlineAgent))
    reference = st.one_of(reference, st.builds(t.With, reference, keywords))
    member = st.builds(t.Member, inner, MEMBERS)
    return st.one_of(
        many.map(t.List),
        pairs.map(t.Object),
        st.builds(t.Not, inner),
        st.builds(t.Logical, st.sampled_from(["and", "or"]), inner, inner),
        st.builds(t.Compare, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(t.Sum, st.sampled_from(["+", "-"]), inner, inner),
        member,
        st.builds(t.Index, inner, inner),
        st.builds(t.Call, inner, many, keywords),
        st.builds(t.Predicate, template, inner),
        st.builds(t.With, inner, keywords),
        reference,
        st.builds(t.AgentCall, reference, template, st.one_of(st.none(), inner), keywords),
    )


expression = st.recursive(leaf, _composite, max_leaves=8)
keywords = st.lists(st.builds(t.Keyword, MEMBERS, expression), max_size=3).map(tuple)

_simple = st.one_of(
    st.builds(t.Assign, name, expression),
    st.builds(t.ExpressionStatement, expression),
    st.sampled_from([t.Pass(), t.Break(), t.Continue()]),
    st.builds(t.Return, st.one_of(st.none(), expression)),
    st.builds(t.Raise, st.one_of(st.none(), string)),
    st.builds(t.SkillImport, string, string),
    st.builds(t.ModuleImport, string, name, st.booleans(), st.one_of(st.none(), name)),
    st.builds(t.Export, name, st.booleans()),
    st.builds(t.ExportPack, st.lists(expression, max_size=2).map(tuple), keywords),
    st.builds(t.AgentDeclaration, name, keywords),
)
_bound = st.sampled_from(["a", "b1", "_y"]).map(t.Name)
_pattern = st.one_of(
    st.just(t.AnyPattern()),
    st.builds(t.ErrorPattern, st.one_of(st.none(), _bound), st.none()),
    st.builds(t.ErrorPattern, st.none(), fragment),
    st.builds(t.CriterionPattern, template),
)


def _compound(inner: st.SearchStrategy[t.Statement]) -> st.SearchStrategy[t.Statement]:
    body = st.lists(inner, min_size=1, max_size=3).map(tuple)
    arms = st.lists(st.builds(t.Arm, expression, body), min_size=1, max_size=2).map(tuple)
    handler = st.builds(t.Handler, name, body)
    return st.one_of(
        st.builds(t.If, arms, st.one_of(st.none(), body)),
        st.builds(t.While, expression, body),
        st.builds(t.For, name, expression, body),
        st.builds(t.WithInput, expression, body),
        st.builds(t.Def, name, st.lists(name, max_size=3).map(tuple), body),
        st.builds(t.Match, expression, st.lists(st.builds(t.Case, _pattern, body), min_size=1, max_size=2).map(tuple)),
        st.builds(
            t.Choose,
            expression,
            template,
            name,
            st.lists(st.builds(t.Option, string, body), min_size=1, max_size=2).map(tuple),
        ),
        st.builds(t.Constrain, name, keywords, st.lists(st.builds(t.Require, template), min_size=1).map(tuple)),
        st.one_of(st.builds(t.Try, body, handler, st.one_of(st.none(), body)), st.builds(t.Try, body, st.none(), body)),
    )


statement = st.recursive(_simple, _compound, max_leaves=5)
programs = st.lists(statement, max_size=5).map(lambda items: t.Program(tuple(items)))

_TOKEN = re.compile(r'"""(?:\\.|[^"\\]|"(?!""))*"""|"(?:\\.|[^"\\])*"|`(?:\\`|[^`])*`|[\w.]+|[=<>!]=|\s+|.', re.S)


@st.composite
def commented(draw: st.DrawFn, text: str) -> str:
    """A program's text with comments and blank lines anywhere that they may stand.

    Inside of brackets there are two tokens at least between two comments: nearer ones may be printed in one place, and then the second one gets its own line.
    """
    pieces: list[str] = []
    depth, since, number = 0, 0, 0
    indent = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if depth == 0 and "\n" in token and token.isspace():
            indent = token.rpartition("\n")[2]
            if draw(st.booleans()):
                number += 1
                pieces.append(draw(st.sampled_from(["#", " # ", "  #"])) + f"line {number}")
            pieces.append("\n")
            while draw(st.integers(0, 3)) == 0:
                number += 1
                column = " " * draw(st.integers(0, len(indent) + 4))
                pieces.append(draw(st.sampled_from(["\n", f"{column}# alone {number}\n"])))
            pieces.append(indent)
            continue
        pieces.append(token)
        depth += (token in "([{") - (token in ")]}")
        since += not token.isspace()
        if depth and since > 4 and not token.isspace() and token not in "@?" and draw(st.integers(0, 2)) == 0:
            number, since = number + 1, 0
            pieces.append(draw(st.sampled_from([f" # in {number}\n", f"\n\n   # own {number}\n"])))
    return "".join(pieces)
