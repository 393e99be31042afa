"""Name the script of labextension/ after its content, and write the name to package.json. Run it after every edit.

Servers let browsers keep the script for a year, so a changed script needs a new name. `--check` changes nothing and
fails when the names disagree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

LABEXTENSION = Path(__file__).parents[1] / "labextension"


def script_of(labextension: Path) -> Path:
    """The one script in `static/`. Raises `FileNotFoundError` when there is none, `ValueError` when there are more."""
    found = sorted((labextension / "static").glob("remoteEntry*.js"))
    if not found:
        raise FileNotFoundError(f"there is no remoteEntry*.js in {labextension / 'static'}")
    if len(found) > 1:
        raise ValueError(f"more than one script: {', '.join(path.name for path in found)}")
    return found[0]


def name_for(script: Path) -> str:
    """The file name that the content asks for."""
    return f"remoteEntry.{hashlib.sha256(script.read_bytes()).hexdigest()[:16]}.js"


def disagreements(labextension: Path) -> list[str]:
    """What is wrong, one sentence each."""
    script = script_of(labextension)
    wanted = name_for(script)
    load = json.loads((labextension / "package.json").read_text("utf-8"))["jupyterlab"]["_build"]["load"]
    found = []
    if script.name != wanted:
        found.append(f"{script.name} should be called {wanted}")
    if load != f"static/{wanted}":
        found.append(f"package.json loads {load} instead of static/{wanted}")
    return found


def rename(labextension: Path) -> Path:
    """Give the script its name, here and in package.json; the new path."""
    script = script_of(labextension)
    named = script.rename(script.with_name(name_for(script)))
    manifest = labextension / "package.json"
    content = json.loads(manifest.read_text("utf-8"))
    content["jupyterlab"]["_build"]["load"] = f"static/{named.name}"
    manifest.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    return named


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when the names disagree")
    parser.add_argument("directory", nargs="?", type=Path, default=LABEXTENSION)
    options = parser.parse_args(arguments)
    if options.check:
        for problem in disagreements(options.directory):
            print(problem, file=sys.stderr)
        return 1 if disagreements(options.directory) else 0
    print(rename(options.directory).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
