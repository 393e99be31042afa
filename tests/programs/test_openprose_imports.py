"""Imports of OpenProse: paths, contracts, cycles, loading for a run."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.openprose import compile_source
from prose_kernel.language.openprose.program_interface import ProgramInterface
from prose_kernel.language.source import Source
from prose_kernel.programs.consent import Candidate, Fetched
from prose_kernel.programs.openprose_imports import LocalPrograms, Location, handle_and_slug
from prose_kernel.programs.remote_programs import digest_of
from prose_kernel.runtime.ports import LoadRequest

TIDY = 'input text: "What to tidy"\nlet n = exec "true"\noutput clean = text\n'


def without_gates(inputs: Mapping[str, bool], outputs: tuple[str, ...]) -> ProgramInterface:
    return ProgramInterface(inputs, outputs, gates=frozenset())


CONTRACT = without_gates({"text": True}, ("clean",))


def write(directory: Path, **programs: str) -> None:
    for name, text in programs.items():
        place = directory / f"{name.replace('__', '/')}.prose"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


class FakeResolver:
    """A resolver with a few programs; it records which URLs were fetched."""

    def __init__(self, **programs: str) -> None:
        self.programs = {url.replace("_", "/"): text for url, text in programs.items()}
        self.downloaded: dict[str, Fetched] = {}
        self.fetched: list[str] = []

    registry = "https://p.prose.md/"
    most = 100
    size = 4 * 1024 * 1024

    def cached(self, url: str) -> Fetched | None:
        return self.downloaded.get(url)

    def location(self, url: str) -> str:
        return url

    async def fetch(self, url: str) -> Fetched:
        self.fetched.append(url)
        if url not in self.programs:
            raise ImportProgramError(f'"{url}" cannot be loaded: not found')
        data = self.programs[url].encode()
        self.downloaded[url] = Fetched(url, url, data, digest_of(data))
        return self.downloaded[url]

    async def admit(self, candidates: Sequence[Candidate]) -> None:
        """Agree to all programs."""


def failure(programs: LocalPrograms, path: str) -> ImportProgramError:
    with pytest.raises(ImportProgramError) as caught:
        programs.load_contract(path)
    return caught.value


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    ("path", "profile", "address"),
    [
        ("https://example.org/p/fix.prose", "default", "https://example.org/p/fix.prose"),
        ("http://x/y", "default", "http://x/y"),
        ("https://Example.ORG:443/a/./../b?x=/../y#part", "default", "https://example.org/b?x=/../y"),
        ("https://example.org//evil.org/x", "default", "https://example.org/evil.org/x"),
        ("https://example.org?x=//evil.org", "default", "https://example.org/?x=//evil.org"),
        ("https://b\u00fccher.example/\u00fc b", "default", "https://xn--bcher-kva.example/%C3%BC%20b"),
        ("@dana//../..//evil.org/x", "default", "https://p.prose.md/evil.org/x"),
        ("@dana/outline", "default", "https://p.prose.md/dana/outline"),
        ("dana/outline", "default", "https://p.prose.md/dana/outline"),
        ("dana/outline", "strict", "https://p.prose.md/dana/outline"),
        ("examples/xx.prose", "strict", "https://p.prose.md/examples/xx.prose"),
    ],
)
def test_remote_paths_have_urls(tmp_path: Path, path: str, profile: str, address: str) -> None:
    location = LocalPrograms(tmp_path, profile=profile).resolve(path)  # type: ignore[arg-type]
    assert (location.remote, location.address) == (True, address)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("./shared/tidy.prose", "shared/tidy.prose"),
        ("../tidy.prose", "../tidy.prose"),
        ("examples/xx.prose", "examples/xx.prose"),
        ("tidy", "tidy"),
        ("./a/../tidy", "tidy"),
        ("~/tidy.prose", "home/tidy.prose"),
    ],
)
def test_local_paths_are_relative_to_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    programs = LocalPrograms(tmp_path)
    assert programs.resolve(path).address == os.path.realpath(tmp_path / expected)
    assert programs.resolve(str(tmp_path / "x")).address == os.path.realpath(tmp_path / "x")


@pytest.mark.parametrize("path", ["a//c", "@name", "a b/c", "https://"])
def test_invalid_paths_are_errors(tmp_path: Path, path: str) -> None:
    with pytest.raises(ImportProgramError, match="is not an import path"):
        LocalPrograms(tmp_path).resolve(path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("./shared/tidy.prose", ("local", "tidy")),
        ("tidy", ("local", "tidy")),
        ("./v1.2.prose", ("local", "v1.2")),
        ("dana/outline", ("dana", "outline")),
        ("@dana/outline", ("dana", "outline")),
        ("https://example.org/p/fix.prose?x=1", ("url", "fix")),
        ("https://example.org", ("url", "program")),
    ],
)
def test_directory_names_of_imports(tmp_path: Path, path: str, expected: tuple[str, str]) -> None:
    assert handle_and_slug(path, LocalPrograms(tmp_path).resolve(path)) == expected


def test_paths_are_relative_to_the_importing_program(tmp_path: Path) -> None:
    write(tmp_path, lib__outer='use "./deep/inner.prose"\noutput x = inner()\n', lib__deep__inner='output y = "1"\n')
    assert LocalPrograms(tmp_path).load_contract("./lib/outer.prose") == without_gates({}, ("x",))


# ---------------------------------------------------------------- contracts


def test_the_contract_of_a_file(tmp_path: Path) -> None:
    write(tmp_path, tidy="\ufeff" + TIDY.replace("\n", "\r\n"))
    assert LocalPrograms(tmp_path).load_contract("./tidy.prose") == CONTRACT


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, outer='use "./tidy.prose"\noutput x = tidy(text: "a")\n', tidy=TIDY)
    programs = LocalPrograms(tmp_path)
    assert programs.load_contract("./outer.prose") is programs.load_contract("./outer.prose")
    write(tmp_path, tidy='input other: "…"\noutput clean = other\n')
    assert failure(programs, "./outer.prose").code == "E215"
    write(tmp_path, tidy=TIDY)
    assert programs.load_contract("./outer.prose") == without_gates({}, ("x",))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("./missing.prose", '"missing.prose" cannot be loaded: there is no such file'),
        ("./lib", '"lib" cannot be loaded: it is a directory, not a program'),
        ("/dev/null", '"/dev/null" cannot be loaded: it is a device, not a program'),
        ("./tidy.prose/x", '"tidy.prose/x" cannot be loaded: not a directory'),
        ("./a\0b", "a path with unprintable characters cannot be loaded"),
        ("./bytes.prose", '"bytes.prose" cannot be loaded, it has errors: line 1, column 4: '),
    ],
)
def test_files_that_cannot_be_loaded_are_errors(tmp_path: Path, path: str, message: str) -> None:
    write(tmp_path, tidy=TIDY)
    (tmp_path / "lib").mkdir()
    (tmp_path / "bytes.prose").write_bytes(b"let\xff")
    error = failure(LocalPrograms(tmp_path), path)
    assert error.code == "E215"
    assert error.message.startswith(message)


def test_a_missing_file_has_a_hint_to_a_similar_name(tmp_path: Path) -> None:
    write(tmp_path, tidy=TIDY, tidier=TIDY)
    (tmp_path / "lib").mkdir()
    write(tmp_path / "lib", outer='use "../tiddy.prose"\noutput x = "1"\n')
    assert failure(LocalPrograms(tmp_path), "./tdy.prose").hint == "did you mean `tidy.prose`?"
    assert failure(LocalPrograms(tmp_path), "./lib/oter.prose").hint == "did you mean `lib/outer.prose`?"
    assert failure(LocalPrograms(tmp_path), "./lib/tidy.prose").hint is None


def test_the_first_error_of_a_program_is_reported(tmp_path: Path) -> None:
    write(tmp_path, bad='output x = "1"\noutput y = nowhere\noutput z = nowhere\n')
    error = failure(LocalPrograms(tmp_path), "./bad.prose")
    assert error.message.startswith('"bad.prose" cannot be loaded, it has errors: line 2, column 12: ')
    assert error.message.endswith("(and 1 more)")
    assert error.hint == "prose compile bad.prose"
    write(tmp_path, **{"bad one": "output y = nowhere\n"})
    assert failure(LocalPrograms(tmp_path), "./bad one.prose").hint == "prose compile 'bad one.prose'"


def test_errors_name_files_relative_to_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, sub__outer='use "./inner.prose"\n', sub__inner="session\n")
    monkeypatch.chdir(tmp_path)
    error = failure(LocalPrograms(Path("sub")), "./outer.prose")
    assert '"sub/outer.prose" cannot be loaded' in error.message and '"sub/inner.prose"' in error.message


def test_errors_about_imports_have_codes_and_lines(tmp_path: Path) -> None:
    write(tmp_path, tidy=TIDY)
    text = 'use "./tidy.prose"\nuse "./gone.prose"\nlet a = tidy(txt: "x")\nlet { b } = tidy(text: "x")\n'
    compiled = compile_source(Source(text), load=LocalPrograms(tmp_path).load_contract)
    found = [(d.code, d.line) for d in compiled.diagnostics if d.severity == "error"]
    assert found == [("E215", 2), ("E026", 3), ("E027", 3), ("E028", 4)]


# ---------------------------------------------------------------- cycles and depth


def test_import_cycles_are_errors(tmp_path: Path) -> None:
    write(
        tmp_path,
        selfish='use "./selfish.prose"\n',
        a='use "./b.prose"\n',
        b='use "./c.prose"\n',
        c='use "./b.prose"\n',
        back='use "./main.prose"\n',
        main='use "./back.prose"\n',
    )
    programs = LocalPrograms(tmp_path, program=tmp_path / "main.prose")
    for path, cycle in (
        ("./selfish.prose", "selfish.prose -> selfish.prose"),
        ("./a.prose", "b.prose -> c.prose -> b.prose"),
        ("./back.prose", "main.prose -> back.prose -> main.prose"),
    ):
        error = failure(programs, path)
        assert (error.code, error.message) == ("E112", f"Import cycle: {cycle}")


def test_a_cycle_through_a_linked_directory_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, a='use "./sub/a.prose"\n')
    (tmp_path / "sub").symlink_to(".")
    assert failure(LocalPrograms(tmp_path), "./a.prose").code == "E112"


def test_a36_a_link_is_not_imported(tmp_path: Path) -> None:
    write(tmp_path, a='use "./b.prose"\n', c="output x = 1\n")
    (tmp_path / "b.prose").symlink_to("c.prose")
    assert '"b.prose" cannot be loaded: it is a link, not a program' in str(
        failure(LocalPrograms(tmp_path), "./a.prose")
    )


def test_imports_nest_to_any_depth(tmp_path: Path) -> None:
    for n in range(1100):
        write(tmp_path, **{f"p{n}": f'use "./p{n + 1}.prose"\n'})
    write(tmp_path, p1100='output x = "1"\n')
    assert LocalPrograms(tmp_path).load_contract("./p0.prose") == without_gates({}, ())


@pytest.mark.timeout(60)  # 2^40 import paths
def test_shared_imports_are_checked_once(tmp_path: Path) -> None:
    for n in range(40):
        write(tmp_path, **{f"p{n}": f'use "./p{n + 1}.prose" as a\nuse "./q{n + 1}.prose" as b\n'})
        write(tmp_path, **{f"q{n}": f'use "./p{n + 1}.prose" as a\nuse "./q{n + 1}.prose" as b\n'})
    write(tmp_path, p40='output x = "1"\n', q40='output x = "1"\n')
    assert LocalPrograms(tmp_path).load_contract("./p0.prose") == without_gates({}, ())


# ---------------------------------------------------------------- loading for a run


async def test_a_program_and_its_imports_are_loaded(tmp_path: Path) -> None:
    write(tmp_path, lib__outer='use "./inner.prose"\noutput x = inner()\n', lib__inner='output y = "1"\n')
    programs = LocalPrograms(tmp_path)
    outer = await programs.load_program(LoadRequest("./lib/outer.prose", Source("…"), "c1/l0"))
    assert (outer.handle, outer.slug, outer.source.name) == ("local", "outer", "lib/outer.prose")
    assert len(outer.program.items) == 2
    inner = await programs.load_program(LoadRequest("./inner.prose", outer.source, "c1/l0"))
    assert (inner.slug, inner.source.text) == ("inner", 'output y = "1"\n')
    with pytest.raises(ImportProgramError, match="there is no such file"):
        await programs.load_program(LoadRequest("./inner.prose", Source("…"), "c1/l0"))


async def test_remote_programs_need_a_resolver(tmp_path: Path) -> None:
    programs = LocalPrograms(tmp_path)
    assert programs.load_contract("dana/outline") is None
    with pytest.raises(ImportProgramError, match=r'"dana/outline" cannot be loaded: offline') as caught:
        await programs.load_program(LoadRequest("dana/outline", Source("…"), "c1/l0"))
    assert caught.value.code == "E215" and "https://p.prose.md/dana/outline" in str(caught.value.hint)


async def test_a_resolver_loads_remote_programs(tmp_path: Path) -> None:
    shelf = FakeResolver()
    shelf.programs = {
        "https://example.org/p/fix.prose": 'use "./part.prose"\noutput x = part()\n',
        "https://example.org/p/part.prose": 'output y = "1"\n',
        "https://example.org/p/local.prose": 'use "/etc/secret.prose"\n',
    }
    programs = LocalPrograms(tmp_path, resolver=lambda: shelf)
    assert programs.load_contract("https://example.org/p/fix.prose") is None
    fix = await programs.load_program(LoadRequest("https://example.org/p/fix.prose", Source("…"), "c1/l0"))
    assert (fix.handle, fix.slug) == ("url", "fix")
    part = await programs.load_program(LoadRequest("./part.prose", fix.source, "c1/l0"))
    assert (part.handle, part.slug, part.source.text) == ("url", "part", 'output y = "1"\n')
    assert programs.load_contract("https://example.org/p/fix.prose") == without_gates({}, ("x",))
    with pytest.raises(ImportProgramError, match="not found"):
        await programs.load_program(LoadRequest("nobody/nothing", Source("…"), "c1/l0"))
    with pytest.raises(ImportProgramError, match="a file of this machine"):
        await programs.load_program(LoadRequest("https://example.org/p/local.prose", Source("…"), "c1/l0"))


async def test_a56_parallel_loads_read_their_own_recorded_texts(tmp_path: Path) -> None:
    """A branch of a resumed run loads a program whose file is gone, while another branch begins and ends a load."""
    released = {name: asyncio.Event() for name in ("https://example.org/a", "https://example.org/b")}
    waits = {name: asyncio.Event() for name in released}

    class Waiting(FakeResolver):
        async def fetch(self, url: str) -> Fetched:
            waits[url].set()
            await released[url].wait()
            return await super().fetch(url)

    resolver = Waiting()
    resolver.programs = dict.fromkeys(released, TIDY)
    programs = LocalPrograms(tmp_path, resolver=lambda: resolver)
    texts = {str(tmp_path / "gone.prose"): 'use "https://example.org/b" as b\noutput r = 1\n'}
    requests = (
        LoadRequest("https://example.org/a", Source("…"), "c1/b0/l0"),
        LoadRequest("./gone.prose", Source("…"), "c1/b1/l0", texts),
    )
    loads = []
    for request, name in zip(requests, released, strict=True):
        loads.append(asyncio.create_task(programs.load_program(request)))
        await waits[name].wait()
    for load, name in zip(loads, released, strict=True):
        released[name].set()
        assert (await load).texts
    assert failure(programs, "./gone.prose").code == "E215"


async def test_a_load_at_the_same_time_cannot_hide_that_a_person_must_agree(tmp_path: Path) -> None:
    """While one load reads a program from elsewhere, another one begins and ends."""
    write(tmp_path, plain=TIDY, far='use "https://example.org/p" as p\noutput r = 1\n')
    loop, ended, admitted = asyncio.get_running_loop(), threading.Event(), []

    async def load(path: str) -> None:
        await programs.load_program(LoadRequest(path, Source("…"), "c1/l0"))

    class Slow(FakeResolver):
        def cached(self, url: str) -> Fetched | None:
            if not ended.is_set():
                other = asyncio.run_coroutine_threadsafe(load("./plain.prose"), loop)
                other.add_done_callback(lambda _: ended.set())
                assert ended.wait(20)
            return super().cached(url)

        async def admit(self, candidates: Sequence[Candidate]) -> None:
            admitted.extend(candidates)

    resolver = Slow()
    data = TIDY.encode()
    resolver.downloaded["https://example.org/p"] = Fetched(
        "https://example.org/p", "https://example.org/p", data, digest_of(data)
    )
    programs = LocalPrograms(tmp_path, resolver=lambda: resolver)
    await load("./far.prose")
    assert [one.fetched.url for one in admitted] == ["https://example.org/p"]


async def test_a_cycle_of_remote_programs_is_an_error(tmp_path: Path) -> None:
    shelf = FakeResolver()
    shelf.programs = {"https://x/a": 'use "https://x/b"\n', "https://x/b": 'use "https://x/a"\n'}
    programs = LocalPrograms(tmp_path, resolver=lambda: shelf)
    with pytest.raises(ImportProgramError, match="Import cycle: https://x/a -> https://x/b -> https://x/a") as caught:
        await programs.load_program(LoadRequest("https://x/a", Source("…"), "c1/l0"))
    assert caught.value.code == "E112"


def test_locations_are_compared_without_their_displayed_name() -> None:
    assert Location("/a", shown="a") == Location("/a", shown="./a")


async def test_the_loaded_text_is_the_one_agreed_to(tmp_path: Path) -> None:
    """The text may change while the program is checked."""
    texts = ['exec "rm"\n', "output x = 1\n", "output x = 1\n"]
    admitted: list[Candidate] = []

    class Changing(FakeResolver):
        def cached(self, url: str) -> Fetched | None:
            data = (texts.pop(0) if len(texts) > 1 else texts[0]).encode()
            return Fetched(url, url, data, digest_of(data))

        async def admit(self, candidates: Sequence[Candidate]) -> None:
            admitted.extend(candidates)

    resolver = Changing()
    programs = LocalPrograms(tmp_path, resolver=lambda: resolver)
    loaded = await programs.load_program(LoadRequest("https://x/a", Source("…"), "c1/l0"))
    assert loaded.source.text == "output x = 1\n"
    assert [(one.fetched.digest, one.holds) for one in admitted] == [(loaded.digest, ())]


async def test_texts_of_a_resumed_run_apply_only_to_its_loads(tmp_path: Path) -> None:
    (tmp_path / "a.prose").write_text('input new: "?"\n')
    programs = LocalPrograms(tmp_path)
    before = {str(tmp_path / "a.prose"): 'input old: "?"\n'}
    loaded = await programs.load_program(LoadRequest("./a.prose", Source("…"), "c1/l0", before))
    assert loaded.source.text == 'input old: "?"\n'
    found = programs.load_contract("./a.prose")
    assert found is not None and list(found.inputs) == ["new"]
