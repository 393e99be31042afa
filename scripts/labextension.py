"""Name the files of labextension/ by their hashes, so that browsers load changed ones. Run it after every edit.

Servers let browsers keep the files for a year. So the loader's name holds a hash of its content, which package.json
tells JupyterLab, and static/modules.json tells the loader the hashes of the other files. `--check` changes nothing and
fails when they disagree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

LABEXTENSION = Path(__file__).parents[1] / "labextension"


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def loader_of(labextension: Path) -> Path:
    """Return the loader in `static/`. Raises `FileNotFoundError` if there is none, `ValueError` if several."""
    found = sorted((labextension / "static").glob("remoteEntry*.js"))
    if not found:
        raise FileNotFoundError(f"there is no remoteEntry*.js in {labextension / 'static'}")
    if len(found) > 1:
        raise ValueError(f"more than one loader: {', '.join(path.name for path in found)}")
    return found[0]


def modules_of(labextension: Path) -> str:
    """Return the content of modules.json: the hash of each file that the loader loads."""
    static = labextension / "static"
    found = sorted(path.relative_to(static).as_posix() for path in static.glob("*/*.js"))
    return json.dumps({name: hash_of(static / name) for name in found}, indent=2) + "\n"


def disagreements(labextension: Path) -> list[str]:
    """Return one sentence for each error."""
    loader = loader_of(labextension)
    wanted = f"remoteEntry.{hash_of(loader)}.js"
    load = json.loads((labextension / "package.json").read_text("utf-8"))["jupyterlab"]["_build"]["load"]
    modules = labextension / "static" / "modules.json"
    found = []
    if loader.name != wanted:
        found.append(f"{loader.name} should be called {wanted}")
    if load != f"static/{wanted}":
        found.append(f"package.json loads {load} instead of static/{wanted}")
    if not modules.is_file() or modules.read_text("utf-8") != modules_of(labextension):
        found.append("static/modules.json does not list the files as they are")
    return found


def update(labextension: Path) -> Path:
    """Rename the loader, also in package.json, list the other files, and return the loader's new path."""
    loader = loader_of(labextension)
    named = loader.rename(loader.with_name(f"remoteEntry.{hash_of(loader)}.js"))
    manifest = labextension / "package.json"
    content = json.loads(manifest.read_text("utf-8"))
    content["jupyterlab"]["_build"]["load"] = f"static/{named.name}"
    manifest.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    (labextension / "static" / "modules.json").write_text(modules_of(labextension), "utf-8")
    return named


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when the hashes disagree")
    parser.add_argument("directory", nargs="?", type=Path, default=LABEXTENSION)
    options = parser.parse_args(arguments)
    if options.check:
        wrong = disagreements(options.directory)
        print("\n".join(wrong), end="\n" * bool(wrong), file=sys.stderr)
        return 1 if wrong else 0
    print(update(options.directory).name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
