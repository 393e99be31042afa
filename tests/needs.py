"""Programs and packages that may not be installed. Tests that need them call this module, and are skipped without them.

With `PROSE_TESTS_REQUIRE_ALL=1`, as on CI, where `make tools` installs everything, such a test fails instead.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from types import ModuleType
from typing import NoReturn

import pytest

REQUIRE_ALL = os.environ.get("PROSE_TESTS_REQUIRE_ALL", "") not in ("", "0")


def needs(*programs: str) -> str:
    """Return the path of the first of these programs that is installed."""
    found = next((path for name in programs if (path := shutil.which(name))), None)
    return found or lacking(f"{' or '.join(programs)} is not installed (`make tools` installs it where it can)")


def needs_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        lacking(f"the Python package {name} is not installed")


def needs_installed(*modules: str) -> None:
    """Check that modules are installed, without importing them."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            lacking(f"the Python package {name} is not installed")


def lacking(what: str) -> NoReturn:
    """Skip the test, or fail it, because something is not installed."""
    if REQUIRE_ALL:
        pytest.fail(f"{what}, and PROSE_TESTS_REQUIRE_ALL is set", pytrace=False)
    pytest.skip(f"NOT TESTED: {what}", allow_module_level=True)
