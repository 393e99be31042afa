"""JUnit XML, as GitHub, GitLab and Jenkins read it: a suite for each file, a case for each cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from prose_kernel.views.test_results import Outcome, Tested

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(path: Path, results: Sequence[Tested], name: str = "prose test") -> None:
    """Raises `OSError`."""
    from prose_kernel.access.atomic import write_whole

    root = ElementTree.Element("testsuites", name=name)
    for tested in results:
        if tested.outcomes:
            root.append(_suite(tested))
    for count in ("tests", "failures", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ElementTree.indent(root)
    write_whole(path, '<?xml version="1.0" encoding="utf-8"?>\n', ElementTree.tostring(root, encoding="unicode"), "\n")


def _suite(tested: Tested) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=tested.path, errors="0")
    suite.set("tests", str(len(tested.outcomes)))
    suite.set("failures", str(tested.count("failed")))
    suite.set("skipped", str(tested.count("skipped")))
    suite.set("time", f"{sum(outcome.seconds for outcome in tested.outcomes):.3f}")
    suite.extend(_case(tested.path, outcome) for outcome in tested.outcomes)
    return suite


def _case(path: str, outcome: Outcome) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=path, name=_text(outcome.name), file=path)
    case.set("time", f"{outcome.seconds:.3f}")
    if outcome.status == "failed":
        first = outcome.findings[0].lines()[0] if outcome.findings else "failed"
        failure = ElementTree.SubElement(case, "failure", message=_text(first), type="difference")
        failure.text = _text(outcome.text())
    elif outcome.status == "skipped":
        ElementTree.SubElement(case, "skipped", message=_text(outcome.why))
    elif outcome.status == "updated":
        ElementTree.SubElement(case, "system-out").text = _text(f"updated:\n{outcome.text()}")
    return case


def _text(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
