"""Modules of VVM as files: paths, identity, reloading, cycles, errors (docs/reference/vvm.md 9.2, 9.3)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from scaling import assert_linear

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.diagnostics import Compiled
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import compile_source
from prose_kernel.language.vvm.program_interface import CheckedModule, execution_order
from prose_kernel.programs.vvm_imports import LocalModules
from prose_kernel.runtime.ports import LoadRequest


def write(directory: Path, **files: str) -> None:
    for name, text in files.items():
        path = directory / f"{name.replace('__', '/')}.vvm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def compiled(directory: Path, text: str, *, modules: LocalModules | None = None) -> Compiled:
    write(directory, main=text)
    modules = modules or LocalModules(directory, program=directory / "main.vvm")
    return compile_source(Source(text, "main.vvm"), load=modules.load_contract)


def rendered(directory: Path, text: str) -> list[str]:
    return ["\n".join(d.render().split("\n")[:2]) for d in compiled(directory, text).diagnostics]


def order(module: CheckedModule) -> list[str]:
    return [one.source.name for one in execution_order([module])]


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize("path", ["./lib/a.vvm", "./lib/../lib/./a.vvm", "../here/lib/a.vvm", "absolute"])
def test_paths_are_relative_to_the_importing_file(tmp_path, path):
    here = tmp_path / "here"
    write(here, lib__a='from "./deep/b.vvm" import x\nexport x\n', lib__deep__b='from "../c.vvm" import x\nexport x\n')
    write(here, lib__c="x = 1\nexport x\n")
    modules = LocalModules(here)
    path = str(here / "lib" / "a.vvm") if path == "absolute" else path
    module = modules.load_contract(path)
    assert module.path == str(here / "lib" / "a.vvm")
    assert module.contract.exports == ("x",)
    assert [Path(one.path).name for one in execution_order([module])] == ["c.vvm", "b.vvm", "a.vvm"]
    assert modules.load_contract("./lib/a.vvm").path == module.path


def test_displayed_names_are_relative_to_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, sub__a='from "../b.vvm" import x\nexport x\n', b="x = 1\nexport x\n")
    assert order(LocalModules(Path("sub")).load_contract("./a.vvm")) == ["b.vvm", str(Path("sub", "a.vvm"))]


def test_modules_are_identified_by_path_without_resolving_links(tmp_path):
    write(tmp_path, a="x = 1\nexport x\n")
    (tmp_path / "sub").symlink_to(tmp_path)
    modules = LocalModules(tmp_path)
    a, b = modules.load_contract("./a.vvm"), modules.load_contract("./sub/a.vvm")
    assert a is not b
    assert b.path == str(tmp_path / "sub" / "a.vvm")
    assert b.contract.exports == ("x",)


@pytest.mark.parametrize(
    "path", ["std", "@handle/name", "https://example.org/a.vvm", "~/a.vvm", "a.vvm", "", "./a\0.vvm"]
)
def test_only_files_can_be_imported(tmp_path, path):
    with pytest.raises(ImportProgramError) as raised:
        LocalModules(tmp_path).load_contract(path)
    assert raised.value.code == "V090"


# ---------------------------------------------------------------- V090


def test_a23_a_missing_module_is_reported_at_the_import_that_names_it(tmp_path):
    write(tmp_path, lib__a='x = 1\nfrom "./b.vvm" import y\nexport x\nexport y\n')
    found = compiled(tmp_path, 'from "./lib/a.vvm" import x\nexport x\n').diagnostics
    a, b = Path("lib", "a.vvm"), Path("lib", "b.vvm")
    assert [d.render() for d in found] == [
        f'Error at line 2, column 6 of {a}: Module not found: {b} [V090]\n  from "./b.vvm" import y\n       ^'
    ]


def test_a_missing_module_has_a_hint_to_a_similar_name(tmp_path):
    write(tmp_path, lib__helper="x = 1\nexport x\n")
    found = compiled(tmp_path, 'from "./lib/helpr.vvm" import x\nexport x\n').diagnostics
    assert [(d.code, d.hint) for d in found] == [("V090", f"did you mean `{Path('lib', 'helper.vvm')}`?")]


def test_a_missing_export_has_the_message_of_the_reference(tmp_path):
    write(tmp_path, a="agent b()\nplan = 1\nexport plan\nexport @b\n")
    text = 'from "./a.vvm" import plam\nfrom "./a.vvm" import b\nfrom "./a.vvm" import @plan\nexport plam\n'
    found = compiled(tmp_path, text).diagnostics
    assert [(d.code, d.message, d.hint) for d in found] == [
        ("V090", "Export 'plam' not found in module './a.vvm'", "did you mean `plan`?"),
        ("V090", "Export 'b' not found in module './a.vvm'", "it is an agent there: `import @b`"),
        ("V090", "Export 'plan' not found in module './a.vvm'", "it is a value there: leave out `@`"),
    ]


def test_paths_that_are_not_regular_files_are_errors(tmp_path):
    (tmp_path / "folder.vvm").mkdir()
    os.mkfifo(tmp_path / "pipe.vvm")
    (tmp_path / "loop.vvm").symlink_to(tmp_path / "loop.vvm")
    with (tmp_path / "huge.vvm").open("wb") as file:
        file.truncate(300 * 1024 * 1024)
    text = "".join(f'from "./{name}.vvm" import x as {name}\n' for name in ("folder", "pipe", "loop", "huge"))
    found = compiled(tmp_path, text).diagnostics
    assert [d.message.split("\n")[0] for d in found] == [
        "Module not found: folder.vvm (it is a directory, not a program)",
        "Module not found: pipe.vvm (it is a device, not a program)",
        "Module not found: loop.vvm (it is a link, not a program)",
        "Module not found: huge.vvm (no program is that large)",
    ]


# ---------------------------------------------------------------- errors of modules


def test_errors_of_an_imported_module_name_its_file(tmp_path):
    write(tmp_path, a="x = (1\nexport x\n", b='from "./a.vvm" import x\ny = @nobody `t`()\nexport y\n')
    found = compiled(tmp_path, 'from "./b.vvm" import y\nz = {\nexport y\n').diagnostics
    assert [(d.file, d.code) for d in found if d.severity == "error"] == [
        ("", "V001"),
        ("a.vvm", "V001"),
        ("b.vvm", "V040"),
    ]
    assert not compiled(tmp_path, 'from "./b.vvm" import y\nexport y\n').ok


def test_a_module_that_is_not_utf8_is_an_error(tmp_path):
    (tmp_path / "a.vvm").write_bytes(b"x = 1\ny = \xff\n")
    found = compiled(tmp_path, 'from "./a.vvm" import x\nexport x\n').diagnostics
    assert [(d.file, d.code, d.line, d.column) for d in found] == [("a.vvm", "V001", 2, 5)]


def test_a_module_with_a_syntax_error_may_export_any_name(tmp_path):
    write(tmp_path, a="x = 1\nexport = x\n")
    found = compiled(tmp_path, 'from "./a.vvm" import x\nexport x\n').diagnostics
    assert {d.file for d in found} == {"a.vvm"}


def test_warnings_of_modules_are_not_errors(tmp_path):
    write(tmp_path, a="unread = 1\nx = 1\nexport x\n")
    result = compiled(tmp_path, 'from "./a.vvm" import x\nexport x\n')
    assert result.ok
    assert [(d.file, d.code) for d in result.diagnostics] == [("a.vvm", "V530")]


# ---------------------------------------------------------------- cycles, diamonds, skills


def test_e201_a_cycle_is_reported_at_the_import_that_closes_it(tmp_path):
    write(tmp_path, a='from "./b.vvm" import y\nx = y\nexport x\n', b='from "./main.vvm" import z\ny = z\nexport y\n')
    found = compiled(tmp_path, 'from "./a.vvm" import x\nz = x\nexport z\n').diagnostics
    assert [(d.file, d.code, d.line, d.message) for d in found] == [
        ("b.vvm", "V201", 1, "modules import each other: main.vvm -> a.vvm -> b.vvm -> main.vvm")
    ]


def test_e201_a_cycle_names_a_program_in_another_directory_once(tmp_path, monkeypatch):
    text = 'from "../main.vvm" import x\nexport x\n'
    write(tmp_path, main='from "./sub/b.vvm" import x\nexport x\n', sub__b=text)
    monkeypatch.chdir(tmp_path)
    for base, cycle in (
        (Path("sub"), "sub/b.vvm -> main.vvm -> sub/b.vvm"),
        (tmp_path / "sub", "b.vvm -> ../main.vvm -> b.vvm"),
    ):
        modules = LocalModules(base, program=Path("b.vvm"))
        [found] = compile_source(Source(text, "sub/b.vvm"), load=modules.load_contract).diagnostics
        assert found.message == f"modules import each other: {cycle}"


def test_e201_a_module_that_imports_itself_is_an_error(tmp_path):
    found = compiled(tmp_path, 'from "./sub/../main.vvm" import x\nexport x\n').diagnostics
    assert [(d.file, d.code, d.message) for d in found] == [("", "V201", "main.vvm imports itself")]
    write(tmp_path, a='from "./a.vvm" import x\nexport x\n')
    found = compiled(tmp_path, 'from "./a.vvm" import x\nexport x\n').diagnostics
    assert [(d.file, d.code, d.message) for d in found] == [("a.vvm", "V201", "a.vvm imports itself")]


def test_a_module_imported_twice_is_one_object(tmp_path):
    write(tmp_path, base="unread = 1\nx = 1\nexport x\n")
    for name in ("left", "right"):
        write(tmp_path, **{name: 'from "./base.vvm" import x\nexport x\n'})
    write(tmp_path, top='from "./left.vvm" import x as a\nfrom "./right.vvm" import x as b\nexport a\nexport b\n')
    module = LocalModules(tmp_path).load_contract("./top.vvm")
    left, right = module.imports["./left.vvm"], module.imports["./right.vvm"]
    assert left.imports["./base.vvm"] is right.imports["./base.vvm"]
    assert order(module) == ["base.vvm", "left.vvm", "right.vvm", "top.vvm"]
    found = compiled(tmp_path, 'from "./top.vvm" import a\nexport a\n').diagnostics
    assert [d.code for d in found] == ["V530"]


def test_e032_modules_agree_on_the_sources_of_skills(tmp_path):
    write(tmp_path, a='import "s" from "npm:s"\nimport "t" from "npm:t"\nx = 1\nexport x\n')
    write(tmp_path, b='import "t" from "npm:t"\nimport "s" from "npm:other"\ny = 1\nexport y\n')
    imports = 'from "./a.vvm" import x\nfrom "./b.vvm" import y\n'
    found = compiled(tmp_path, f'{imports}import "t" from "./t"\nexport pack(x, y)\n').diagnostics
    assert [(d.file, d.code, d.line, d.message) for d in found] == [
        ("", "V032", 3, 'the skill "t" comes from "./t" here, but from "npm:t" in a.vvm'),
        ("b.vvm", "V032", 2, 'the skill "s" comes from "npm:other" here, but from "npm:s" in a.vvm'),
    ]
    assert compiled(tmp_path, 'from "./a.vvm" import x\nimport "s" from "npm:s"\nexport x\n').ok


# ---------------------------------------------------------------- loading


def test_a_module_is_the_same_object_until_a_file_changes(tmp_path):
    write(tmp_path, a="x = 1\nexport x\n", b='from "./a.vvm" import x\nexport x\n')
    modules = LocalModules(tmp_path)
    before = modules.load_contract("./b.vvm")
    assert modules.load_contract("./b.vvm") is before
    write(tmp_path, a="x = 22\nexport x\n")
    after = modules.load_contract("./b.vvm")
    assert after is not before
    assert after.program is before.program
    assert after.imports["./a.vvm"].source.text == "x = 22\nexport x\n"


async def test_a_loaded_module_has_all_its_imports(tmp_path):
    write(tmp_path, a="x = 1\nexport x\n", b='from "./a.vvm" import x\nexport x\n')
    modules = LocalModules(tmp_path, program=tmp_path / "main.vvm")
    loaded = await modules.load_program(LoadRequest("./b.vvm", Source("…"), "c1/l0"))
    assert isinstance(loaded.program, CheckedModule)
    assert loaded.source is loaded.program.source
    assert order(loaded.program) == ["a.vvm", "b.vvm"]


async def test_a_module_with_errors_is_not_loaded(tmp_path):
    write(tmp_path, a="x = @nobody `t`()\nexport x\n", b='from "./a.vvm" import x\nexport x\n')
    with pytest.raises(
        ImportProgramError, match=r'"a\.vvm" cannot be loaded, it has errors: line 1, column 5'
    ) as raised:
        await LocalModules(tmp_path).load_program(LoadRequest("./b.vvm", Source("…"), "c1/l0"))
    assert raised.value.hint == "prose compile a.vvm"
    with pytest.raises(ImportProgramError, match=r"Module not found: gone\.vvm"):
        await LocalModules(tmp_path).load_program(LoadRequest("./gone.vvm", Source("…"), "c1/l0"))


def test_modules_nest_to_any_depth(tmp_path):
    def work(size: int):
        directory = tmp_path / str(size)
        for at in range(size):
            write(directory, **{f"p{at}": f'from "./p{at + 1}.vvm" import x\nexport x\n'})
        write(directory, **{f"p{size}": "x = 1\nexport x\n"})
        return lambda: LocalModules(directory).load_contract("./p0.vvm")

    assert_linear(work, 100)
    module = work(1200)()
    assert len(execution_order([module])) == 1201
