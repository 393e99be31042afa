"""The report of an evaluation: tables for the terminal and the notebook, and an HTML page.

If all answers are recorded, the report is the same each time. New measurements (costs, tokens, times of live answers)
have separate columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prose_kernel.evaluation.results import INTERRUPTED, CaseResult, Summary, VariantDifference, VariantSummary
from prose_kernel.views import document as doc
from prose_kernel.views.escaping import Html, clip, html, tag, visible
from prose_kernel.views.page import Filter, Section, as_html, page

NOT_PASSED: Final = 20
"""The number of runs without success that are listed; the page lists all of them."""


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share in (0, 1) or 0.005 <= share < 0.995 else f"{100 * share:.1f} %"


def variants(summary: Summary) -> doc.Table:
    measured = [
        (title, shown) for title, shown in _MEASURED.items() if any(shown(one) != "-" for one in summary.variants)
    ]
    rows: list[Sequence[str]] = []
    for one in summary.variants:
        low, high = one.interval
        counts = [f"{one.count(status):,}" for status in ("passed", "failed", "error")]
        rate = f"{percent(one.rate)} ({percent(low)} to {percent(high)})" if one.runs else "no runs"
        rows.append((one.name, rate, *counts, f"{one.score:.2f}", *(shown(one) for _, shown in measured)))
    head = ("variant", "pass rate (95 %)", "passed", "failed", "errors", "score")
    titles = (*head, *(title for title, _ in measured))
    return doc.Table(titles, rows, numbers=range(1, len(titles)))


def _tokens(one: VariantSummary) -> str:
    return f"{one.tokens / one.runs:,.0f}" if one.tokens else "-"


def _cost(one: VariantSummary) -> str:
    if not one.cost:
        return "unknown" if one.unpriced else "-"
    return f"{one.cost:.4f} usd" + (" and more" if one.unpriced else "")


def _time(one: VariantSummary) -> str:
    return f"{one.seconds:.2f} s" if one.seconds >= 0.005 else "-"


_MEASURED: Final[Mapping[str, Callable[[VariantSummary], str]]] = {
    "tokens a run": _tokens,
    "cost": _cost,
    "time of a run": _time,
}


def assertions(summary: Summary) -> doc.Table:
    """Return a table with a row for each assertion: the share of runs in which it held, by variant."""
    names = [one.name for one in summary.spec.assertions]
    rows = [(name, *(percent(one.checks[name]) if one.runs else "-" for one in summary.variants)) for name in names]
    head = ("assertion", *(one.name for one in summary.variants))
    return doc.Table(head, rows, numbers=range(1, len(head)))


def heading(summary: Summary) -> str:
    spec = summary.spec
    parts = [doc.counted(summary.cases, "case")]
    if len(summary.variants) > 1:
        parts.append(doc.counted(len(summary.variants), "variant"))
    if spec.repeat > 1:
        parts.append(doc.counted(spec.repeat, "repetition"))
    return f"{spec.name or spec.path.name}: {', '.join(parts)}"


def remarks(summary: Summary) -> Iterator[str]:
    """Yield the remarks below the tables: differences, the baseline, pass rates that were missed."""
    for one in summary.differences:
        sure = "significant" if one.significant else "may be chance"
        yield f"{one.name} against {one.against}: {_cases(one)}; p = {one.p:.3f} (sign test), {sure}"
    for one in summary.against:
        before, now = percent(one.rates[1]), percent(one.rates[0])
        ruling = "REGRESSION" if one.regressed(summary.spec.regression) else "no regression"
        worse = f" (worse: {_named(one.worse_cases)})" if one.worse else ""
        yield f"{one.name} against the baseline {one.against}: {before} then, {now} now, {_cases(one)}{worse}: {ruling}"
    for variant in summary.variants:
        if variant.too_few:
            yield f"{variant.name}: {percent(variant.rate)} passed, and {percent(variant.wanted or 0)} is wanted"
    yield from summary.notes
    if summary.stopped:
        done = f"{len(summary.results):,} of {summary.planned:,} results are there"
        why = "interrupted" if summary.stopped == INTERRUPTED else summary.stopped
        yield f"{why}: {done}; the same command continues with the rest"


def _cases(one: VariantDifference) -> str:
    return f"better in {doc.counted(one.better, 'case')}, worse in {one.worse:,}, the same in {one.same:,}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(clip(visible(name), 40) for name in names[:5]) + more


def not_passed(summary: Summary) -> Iterator[str]:
    """Yield a line with the reason for each of the first runs that have not passed."""
    found = [one for one in summary.results if not one.passed]
    for one in found[:NOT_PASSED]:
        yield f"{_run(summary, one)}: {'ERROR ' if one.status == 'error' else ''}{clip(visible(failure_of(one)), 200)}"
    if len(found) > NOT_PASSED:
        yield f"… and {len(found) - NOT_PASSED:,} more (--html FILE shows all)"


def failure_of(one: CaseResult) -> str:
    """Return the reason why a run has not passed."""
    if one.error:
        return one.error
    return "; ".join(f"{check.name}: {check.reason or 'it does not hold'}" for check in one.checks if not check.passed)


def _run(summary: Summary, one: CaseResult) -> str:
    parts = [one.case]
    if len(summary.variants) > 1:
        parts.append(one.variant)
    if summary.spec.repeat > 1:
        parts.append(str(one.repetition))
    return visible(", ".join(parts))


def document(summary: Summary) -> doc.Group:
    """Return the report for a terminal or a notebook."""
    blocks: list[doc.Block] = [doc.line(doc.Strong(heading(summary))), variants(summary), assertions(summary)]
    if lines := list(remarks(summary)):
        blocks.append(doc.Items([[line] for line in lines], indent=0))
    if lines := list(not_passed(summary)):
        blocks.append(doc.group(doc.paragraph("Not passed:", "not passed:"), doc.Items([[line] for line in lines])))
    return doc.group(*blocks, gap="\n\n")


def html_page(summary: Summary) -> str:
    """Return the report with every run as one HTML page."""
    title = f"Evaluation: {summary.spec.name or summary.spec.path.name}"
    lines = [[line] for line in remarks(summary)]
    tables = doc.group(variants(summary), assertions(summary), doc.Items(lines) if lines else None)
    runs = html(*(_html_run(summary, one) for one in summary.results))
    options = (("all", "All"), ("passed", "Passed"), ("failed", "Failed"), ("error", "Errors"))
    return page(
        title,
        html(tag("h1", title), tag("p", heading(summary))),
        [Section("results", "Results", as_html(tables)), Section("runs", "Runs", runs)],
        Filter("show", "Show runs", "run", options),
    )


def _html_run(summary: Summary, one: CaseResult) -> Html:
    body = [tag("p", one.error)] if one.error else []
    if one.checks:
        checks = [
            (
                check.name,
                "error" if check.error else "passed" if check.passed else "failed",
                f"{check.score:.2f}",
                check.reason,
            )
            for check in one.checks
        ]
        body.append(as_html(doc.Table(("assertion", "", "score", "why"), checks, numbers=(2,), most=None)))
    body += [tag("details", tag("summary", name), tag("pre", value)) for name, value in one.outputs.items()]
    head = tag("summary", f"{_run(summary, one)}: {one.status}")
    return html(tag("details", head, *body, class_=f"run {one.status}", open=not one.passed), "\n")
