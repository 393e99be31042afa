"""The results of the runs of an evaluation, the file that stores them, and their summary: pass rates, differences
between variants, regressions against a baseline.

Each result is added to the file, in JSON Lines, as soon as it is known, so an interrupted or killed evaluation can
resume after the last one. The key of a result (`key_of`) depends on its request: a changed request is run again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct

from prose_kernel.access import atomic, jsonl, plain_files
from prose_kernel.errors import UsageError, reason_of, usage_errors
from prose_kernel.evaluation.spec import Spec
from prose_kernel.judging.calibration import wilson

Status = Literal["passed", "failed", "error"]
DIRECTORY: Final = "evaluations"
_ENDED: Final = b'{"ended":true}\n'


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of an assertion about a run. `error` is true if it could not be evaluated, with the `reason`."""

    name: str
    passed: bool
    score: float
    reason: str = ""
    error: bool = False


class CaseResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one run: a case, a variant, a repetition.

    `error` is the reason if the run has no result; `no_answer`: no answer was recorded and no provider could answer.
    `seconds` is the duration of its sessions and judgements, `cost` their known cost in US dollars; `unpriced` of them
    have no known price. Replayed answers count with the values of their recording.
    """

    key: str
    case: str
    variant: str
    repetition: int
    status: Status
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    checks: tuple[Check, ...] = ()
    error: str = ""
    no_answer: bool = msgspec.field(default=False, name="nobody")
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced: int = 0
    sessions: int = 0
    outputs: Mapping[str, str] = {}

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


def key_of(parts: Sequence[Any]) -> str:
    """Return a short digest of the parts that decide a result."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:20]


class ResultsFile:
    """The file with the results of an evaluation. A complete evaluation starts again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, CaseResult]:
        """Return the results of an incomplete evaluation by key, none for a complete one; ignore incomplete lines."""
        try:
            data = plain_files.read(self.path)
        except OSError:
            return {}
        if data.endswith(_ENDED):
            return {}
        decode = msgspec.json.Decoder(CaseResult).decode
        found = {}
        for _, line, _ in jsonl.lines(data):
            with contextlib.suppress(msgspec.DecodeError):
                result = decode(line)
                found[result.key] = result
        return found

    def begin(self, kept: Mapping[str, CaseResult]) -> None:
        """Begin a new file with the results `kept`. Raises `UsageError`."""
        with usage_errors(f"results cannot be noted in {self.path.name}"):
            atomic.write_whole(self.path, msgspec.json.Encoder().encode_lines(kept.values()))

    def add(self, result: CaseResult) -> None:
        self._write(msgspec.json.encode(result) + b"\n")

    def end(self) -> None:
        """Mark the evaluation as complete."""
        self._write(_ENDED)

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # on a full disk, the evaluation continues, but cannot be resumed later
            jsonl.append(self.path, line)


# ---------------------------------------------------------------- summary

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """The results of a variant. `checks` has the share of passes by assertion; `seconds` is the median of its runs."""

    name: str
    results: Sequence[CaseResult] = field(repr=False)
    checks: Mapping[str, float]
    wanted: float | None = None

    def count(self, status: str) -> int:
        return sum(one.status == status for one in self.results)

    @property
    def runs(self) -> int:
        return len(self.results)

    @property
    def passed(self) -> int:
        return self.count("passed")

    @property
    def rate(self) -> float:
        return self.passed / self.runs if self.runs else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence interval of the pass rate. Its sample size is the number of cases; repetitions only make the
        share of a case more precise."""
        cases = self.cases()
        return wilson(math.fsum(passed / runs for passed, runs in cases.values()), len(cases))

    @property
    def score(self) -> float:
        return math.fsum(one.score for one in self.results) / self.runs if self.runs else 0.0

    @property
    def tokens(self) -> int:
        return sum(one.tokens for one in self.results)

    @property
    def cost(self) -> float:
        return math.fsum(one.cost for one in self.results)

    @property
    def unpriced(self) -> int:
        return sum(one.unpriced for one in self.results)

    @property
    def seconds(self) -> float:
        return median(one.seconds for one in self.results) if self.results else 0.0

    @property
    def too_few(self) -> bool:
        """Whether the pass rate is below that of the specification."""
        return self.wanted is not None and self.rate < self.wanted

    def cases(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of passed runs and of all runs, by case."""
        found: dict[str, tuple[int, int]] = {}
        for one in self.results:
            passed, runs = found.get(one.case, (0, 0))
            found[one.case] = (passed + one.passed, runs + 1)
        return found


class VariantDifference(Struct, frozen=True):
    """A comparison of a variant with another one, or with itself in a baseline, by the number of better and worse
    cases. `rates` are the pass rates of both."""

    name: str
    against: str
    better: int
    worse: int
    same: int
    worse_cases: tuple[str, ...] = ()
    rates: tuple[float, float] = (0.0, 0.0)

    @property
    def p(self) -> float:
        return sign_test(self.better, self.worse)

    @property
    def significant(self) -> bool:
        return self.p < SIGNIFICANT

    def regressed(self, rule: str) -> bool:
        """Return whether this is a regression: more cases are worse than chance explains, or (`any`) one is worse."""
        if rule == "any":
            return self.worse > 0
        return self.worse > self.better and one_sided(self.better, self.worse) < SIGNIFICANT


Cases = Mapping[str, tuple[int, int]]


def difference(name: str, cases: Cases, against: str, others: Cases) -> VariantDifference:
    """Compare the common cases by their shares of passes."""
    counts = {"better": 0, "worse": 0, "same": 0}
    worse_cases = []
    passed = [0.0, 0.0]
    both = [case for case in cases if case in others]
    for case in both:
        (now, runs), (then, then_runs) = cases[case], others[case]
        how = "same" if now * then_runs == then * runs else "better" if now * then_runs > then * runs else "worse"
        counts[how] += 1
        if how == "worse":
            worse_cases.append(case)
        passed[0] += now / runs
        passed[1] += then / then_runs
    rates = (passed[0] / len(both), passed[1] / len(both)) if both else (0.0, 0.0)
    return VariantDifference(
        name, against, counts["better"], counts["worse"], counts["same"], tuple(worse_cases), rates
    )


class Summary(Struct, frozen=True):
    """An evaluation: its specification, results and notes. `planned` is the number of runs, `stopped` the reason why
    not all of them have a result."""

    spec: Spec
    cases: int
    planned: int
    variants: tuple[VariantSummary, ...]
    notes: tuple[str, ...] = ()
    stopped: str = ""
    against: tuple[VariantDifference, ...] = ()
    """The comparison of each variant with itself in the baseline."""

    @property
    def results(self) -> list[CaseResult]:
        return [one for variant in self.variants for one in variant.results]

    @property
    def differences(self) -> tuple[VariantDifference, ...]:
        """The comparison of each further variant with the first one."""
        first, *others = self.variants
        own = first.cases()
        return tuple(difference(one.name, one.cases(), first.name, own) for one in others)

    @property
    def regressions(self) -> tuple[VariantDifference, ...]:
        return tuple(one for one in self.against if one.regressed(self.spec.regression))

    @property
    def status(self) -> int:
        """The exit status: 0 fine, 1 a regression, too few passes, or runs without a result, 3 if no provider could
        answer, 130 interrupted."""
        if self.stopped == INTERRUPTED:
            return 130
        if any(one.no_answer for one in self.results):
            return 3
        errors = any(one.status == "error" for one in self.results)
        return 1 if self.stopped or errors or self.regressions or any(one.too_few for one in self.variants) else 0


INTERRUPTED: Final = "interrupted"


def summary_of(spec: Spec, names: Sequence[str], results: Sequence[CaseResult], cases: int, **more: Any) -> Summary:
    """Return the summary of `results`, which are in the order of the data set."""
    variants = []
    for name, variant in zip(names, spec.variants, strict=True):
        own = [one for one in results if one.variant == name]
        checks = {}
        for number, assertion in enumerate(spec.assertions):
            passed = [one.checks[number].passed for one in own if number < len(one.checks)]
            checks[assertion.name] = sum(passed) / len(own) if own else 0.0
        wanted = variant.pass_rate if variant.pass_rate is not None else spec.pass_rate
        variants.append(VariantSummary(name, own, checks, wanted))
    return Summary(spec, cases, cases * len(names) * spec.repeat, tuple(variants), **more)


# ---------------------------------------------------------------- baselines


def baseline_text(summary: Summary) -> str:
    """Return the text of a baseline: how often each case has passed, one case a line, for readable diffs."""
    lines = ["{", f' "v": {VERSION},', ' "variants": {']
    for number, one in enumerate(summary.variants, 1):
        lines.append(f"  {json.dumps(one.name, ensure_ascii=False)}: {{")
        rows = [f"   {json.dumps(case, ensure_ascii=False)}: {json.dumps(n)}" for case, n in one.cases().items()]
        lines += [",\n".join(rows), "  }" + ("," if number < len(summary.variants) else "")]
    return "\n".join([*lines, " }", "}", ""])


def read_baseline(path: Path, shown: str) -> Mapping[str, Cases]:
    """Return the cases of each variant in a baseline. Raises `UsageError`."""
    try:
        data = json.loads(plain_files.read_text(path))
        if data["v"] != VERSION:
            raise UsageError(f"{shown} is a baseline of another version ({data['v']})")
        return {
            str(name): {str(case): (int(passed), int(runs)) for case, (passed, runs) in cases.items() if runs}
            for name, cases in data["variants"].items()
        }
    except OSError as problem:
        hint = f"to make it: --save-baseline {shown}" if isinstance(problem, FileNotFoundError) else None
        raise UsageError(f"cannot read {shown}: {reason_of(problem)}", hint=hint) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{shown} isn't a baseline", hint="--save-baseline FILE writes one") from None


def against_baseline(summary: Summary, baseline: Mapping[str, Cases], shown: str) -> tuple[VariantDifference, ...]:
    """Compare each variant with itself in the baseline. Raises `UsageError` if they have no variant in common."""
    both = [one for one in summary.variants if one.name in baseline]
    if not both:
        raise UsageError(f"{shown} has no variant of this evaluation: there are {', '.join(baseline) or 'none'}")
    return tuple(difference(one.name, one.cases(), shown, baseline[one.name]) for one in both)


# ---------------------------------------------------------------- significance


SIGNIFICANT: Final = 0.05


def at_least(count: int, trials: int) -> float:
    """Return the probability of at least `count` heads in `trials` throws of a fair coin."""
    ways = sum(math.comb(trials, number) for number in range(trials - count + 1))
    return float(Fraction(ways, 2**trials))


def sign_test(better: int, worse: int) -> float:
    """Return the probability of a difference this large by chance (exact, two-sided). Ties are ignored."""
    return min(1.0, 2 * at_least(max(better, worse), better + worse)) if better + worse else 1.0


def one_sided(better: int, worse: int) -> float:
    """Return the probability of this many worse cases, or more, by chance."""
    return at_least(worse, better + worse) if worse else 1.0
