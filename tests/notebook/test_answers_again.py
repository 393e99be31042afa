"""A48: a cell that runs again after a restart gives the answer that it has shown last."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebook.kernels import Client, kernel, specification, vvm_specification
from notebook.test_restore import again
from stubs.model_server import StubServer

ASKS = 'session "Say it"'
CALLS = 'agent scribe(prompt="Be brief.")\n@scribe `Say it`()'


class Notebook:
    """A notebook whose model gives another word for each request."""

    def __init__(self, client: Client, stub: StubServer, asks: str = ASKS) -> None:
        self.client = client
        self.stub = stub
        self.asks = asks

    def run(self, cell: str, says: str) -> str:
        """The answer of the session in the cell; `says` is the model's word now."""
        self.stub.script("now", says)
        self.client.channels.session.metadata = {"cellId": cell} if cell else {}
        ran = self.client.run(self.asks, allow_stdin=True)
        assert ran.status == "ok", ran.error
        shown = [m["content"]["data"]["text/plain"] for m in ran.outputs if "data" in m["content"]]
        return str(shown[-1]).splitlines()[-1]

    def restart(self) -> None:
        again(self.client)


def settings(directory: Path, stub: StubServer) -> None:
    (directory / "prose.toml").write_text(
        f'provider = "stub:script-now"\n[cassette]\nmode = "auto"\n'
        f'[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nkey = ""\n'
    )


@pytest.mark.parametrize("vvm", [False, True])
def test_a48_a_cell_after_a_restart_gives_what_it_has_shown_last(directory: Path, stub: StubServer, vvm: bool) -> None:
    settings(directory, stub)
    with kernel(directory, spec=vvm_specification() if vvm else None, forks=True) as client:
        book = Notebook(client, stub, CALLS if vvm else ASKS)
        assert [book.run("a", "1"), book.run("b", "2"), book.run("a", "3")] == ["1", "2", "3"]
        book.restart()
        assert [book.run("b", "x"), book.run("a", "x")] == ["2", "3"]  # in another order too
        assert book.run("a", "4") == "4"
        book.restart()
        assert client.run("%restore").status == "ok"
        assert [book.run("a", "x"), book.run("b", "x")] == ["4", "2"]
        assert book.run("b", "5") == "5"
        again(client)
        assert [book.run("", "x"), book.run("", "x")] == ["4", "5"]  # a run from the top whose cells have no ids


def test_a48_in_a_python_notebook(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    with kernel(directory, spec=specification("ipykernel_launcher", "signal"), forks=True) as client:
        book = Notebook(client, stub, f"%%prose\n{ASKS}")
        client.run("%load_ext prose_kernel")
        assert [book.run("a", "1"), book.run("a", "2"), book.run("b", "3")] == ["1", "2", "3"]
        book.restart()
        client.run("%load_ext prose_kernel")
        assert [book.run("a", "x"), book.run("b", "x")] == ["2", "3"]


@pytest.mark.parametrize("vvm", [False, True])
def test_without_a_model_a_cell_that_runs_again_gets_the_replayed_answers(directory: Path, vvm: bool) -> None:
    condition = "b = ?`is fine`(a)" if vvm else "if **a is fine**:\n  let b = 1"
    asks = f"{CALLS.replace('@', 'a = @')}\n{condition}" if vvm else f"let a = {ASKS}\n{condition}"
    with kernel(directory, spec=vvm_specification() if vvm else None, forks=True) as client:
        assert client.run(asks, ["typed", "yes"], allow_stdin=True).status == "ok"
        corrected = client.run(asks, ["typed again", "no"], allow_stdin=True)
        assert "typed again" in str(corrected.outputs)
        again(client)
        assert [client.run(asks, allow_stdin=True).status for _ in range(3)] == ["ok"] * 3
        new = client.run(f"%ask again\n{asks}", ["typed anew", "yes"], allow_stdin=True)
        assert "typed anew" in str(new.outputs)
