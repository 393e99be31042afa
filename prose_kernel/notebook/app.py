"""The kernel process: sockets, threads and the connection file around one `ProseKernel`.

`ipykernel.kernelapp` would do this too, but it loads IPython's whole shell, which costs start-up time and memory for
parts that this kernel never uses. This module doesn't capture file descriptors (warnings stay on the process's stderr),
and has no profiles, no GUI loops, and no shell-channel thread, which exists only to serve subshells.
"""

# mypy: disable-error-code="no-untyped-call,attr-defined,misc"
from __future__ import annotations

import atexit
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import zmq
from ipykernel.control import ControlThread
from ipykernel.heartbeat import Heartbeat
from ipykernel.iostream import IOPubThread
from ipykernel.parentpoller import ParentPollerUnix
from jupyter_client.connect import ConnectionFileMixin
from jupyter_client.session import Session, json_packer, session_aliases, session_flags
from jupyter_core.paths import jupyter_runtime_dir
from tornado.ioloop import IOLoop
from traitlets import Enum
from traitlets.config import Application
from traitlets.config.application import catch_config_error
from traitlets.utils import filefind
from zmq.eventloop.zmqstream import ZMQStream

from prose_kernel._version import __version__
from prose_kernel.errors import reason_of
from prose_kernel.notebook.kernel import ProseKernel
from prose_kernel.runs import languages
from prose_kernel.runs.run_assembly import add_prose_to_path

_DESCRIPTORS = 48
"""Open files of a kernel that has run its first cell, without those of commands."""
_LINGER = 1000
"""Milliseconds that a closing socket waits to send its last messages."""

_PLAIN = frozenset((str, int, bool, datetime, type(None)))
_encode = msgspec.json.Encoder().encode


def _packed(part: Any) -> bytes:
    """Return a part of a message as JSON. Headers and streams take a tenth of the time of the usual packer."""
    if isinstance(part, dict) and _PLAIN.issuperset(map(type, part.values())):
        with suppress(ValueError, OverflowError):  # such as a lone surrogate
            return _encode(part)
    return json_packer(part)


class ProseApp(Application, ConnectionFileMixin):
    """`python -m prose_kernel [--language=NAME] -f CONNECTION_FILE`: one kernel until it is shut down or its parent
    dies."""

    name = "prose-kernel"
    version = __version__
    classes: ClassVar[list[Any]] = [Session]  # for the help
    description = "The kernel of OpenProse and VVM for Jupyter. Front ends start it; the command line is `prose`."
    aliases: ClassVar[dict[str, str]] = {
        "f": "ProseApp.connection_file",
        "ip": "ProseApp.ip",
        "transport": "ProseApp.transport",
        "language": "ProseApp.language",
        "log-level": "Application.log_level",
        **session_aliases,
    }
    flags: ClassVar[dict[str, Any]] = {
        "debug": ({"Application": {"log_level": logging.DEBUG}}, "log everything"),
        **session_flags,
    }

    language = Enum(
        [language.magic for language in languages.LANGUAGES.values()],
        default_value=languages.default().magic,
        help="The language of a cell that names none.",
    ).tag(config=True)
    zmq_context: Any = None
    kernel: ProseKernel

    @catch_config_error
    def initialize(self, argv: list[str] | None = None) -> None:
        """Prepare everything for the first message. Raises `SystemExit` if the connection file is unusable."""
        given = sys.argv[1:] if argv is None else argv
        if given and not given[0].startswith("-") and not any(one.startswith(("-f", "--f")) for one in given):
            self._refuse(given[0], given)  # before its options are taken for those of the kernel
        super().initialize(argv)
        if self.extra_args and not self.connection_file:
            self._refuse(self.extra_args[0], given)
        self._require_descriptors()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # until the kernel brings its own handler
        add_prose_to_path()
        self._read_connection()
        if self.session.pack is json_packer:
            self.session.pack = _packed
        self._bind_sockets()
        self._write_connection()
        self._make_kernel()
        parent = int(os.environ.get("JPY_PARENT_PID") or 0)
        if parent > 1 and sys.platform != "win32":
            ParentPollerUnix(parent_pid=parent).start()

    def start(self) -> None:
        """Serve until shutdown, then close every socket and thread."""
        atexit.register(self.close)
        self.kernel.start()
        gc.freeze()  # modules are never freed, so later collections need not visit them
        gc.enable()
        try:
            IOLoop.current().start()
        finally:
            atexit.unregister(self.close)
            self.close()

    def _refuse(self, argument: str, given: Sequence[str]) -> None:
        """Exit with an error about an argument without `-f FILE`. With it arguments are ignored, because `jupyter run
        FILE` passes its own arguments on, and some front ends pass the options of ipykernel."""
        import shlex

        message = f"Error: the kernel takes no argument `{argument}`; front ends start it with -f FILE"
        print(f"{message}\nhint: the command line is `prose`, such as: prose {shlex.join(given)}", file=sys.stderr)
        self.exit(2)

    def _require_descriptors(self) -> None:
        """Exit with an error if too few files can be opened. Later, a lack of them would abort the process in the
        library of the sockets, or fail an import in the first cell."""
        opened: list[int] = []
        try:
            while len(opened) < _DESCRIPTORS:
                opened += os.pipe()
        except OSError as problem:
            message = "the kernel cannot open %d files: %s; raise the limit (`ulimit -n`) where it is started"
            self.log.critical(message, _DESCRIPTORS, reason_of(problem))
            self.exit(1)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    # ------------------------------------------------------------ connection file

    def _read_connection(self) -> None:
        self.connection_file = self.connection_file or f"kernel-{os.getpid()}.json"
        try:
            self.connection_file = filefind(self.connection_file, [".", jupyter_runtime_dir()])
        except OSError:
            path = Path(jupyter_runtime_dir()) / self.connection_file
            self.connection_file = str(path)
            with self._exit_if_unwritable():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return
        try:
            self.load_connection_file()
        except (OSError, ValueError, AttributeError) as problem:
            self.log.critical("the connection file %s cannot be read: %s", self.connection_file, problem)
            self.exit(1)

    def _write_connection(self) -> None:
        """Write the connection file unless the client has made it. `close` deletes only a file written here."""
        if not Path(self.connection_file).exists():
            with self._exit_if_unwritable():
                self.write_connection_file()
            if not os.environ.get("JPY_PARENT_PID"):
                print(f"To connect a client: jupyter console --existing {self.connection_file}", file=sys.stderr)

    @contextmanager
    def _exit_if_unwritable(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self.log.critical("the connection file %s cannot be written: %s", self.connection_file, reason_of(problem))
            self.exit(1)

    # ------------------------------------------------------------ sockets

    def _bind_sockets(self) -> None:
        self.zmq_context = zmq.Context()
        self.shell_port = self._bind("shell_socket", zmq.ROUTER, self.shell_port)
        self.stdin_port = self._bind("stdin_socket", zmq.ROUTER, self.stdin_port)
        self.control_port = self._bind("control_socket", zmq.ROUTER, self.control_port)
        self.iopub_port = self._bind("iopub_socket", zmq.XPUB, self.iopub_port)
        self.iopub_thread = IOPubThread(self.iopub_socket, pipe=False, session=self.session)
        self.iopub_thread.start()
        keys = {"curve_publickey": self.curve_publickey, "curve_secretkey": self.curve_secretkey}
        given = keys if self.curve_secretkey is not None else {}
        self.heartbeat = Heartbeat(zmq.Context(), (self.transport, self.ip, self.hb_port), **given)
        self.hb_port = self.heartbeat.port
        self.heartbeat.start()
        self.control_thread = ControlThread(daemon=True)

    def _bind(self, name: str, kind: int, port: int) -> int:
        socket = self.zmq_context.socket(kind)
        socket.linger = _LINGER
        if kind == zmq.ROUTER:
            socket.router_handover = 1  # a client that reconnects keeps its identity
        else:
            socket.sndhwm = 0  # the default queue of 1,000 messages drops silently when a reader is slow
        if self.curve_secretkey is not None:
            socket.curve_secretkey = self.curve_secretkey
            socket.curve_publickey = self.curve_publickey
            socket.curve_server = True
        setattr(self, name, socket)
        if self.transport == "ipc":
            return self._bind_ipc(socket, port)
        if port > 0:
            socket.bind(f"tcp://{self.ip}:{port}")
            return port
        return int(socket.bind_to_random_port(f"tcp://{self.ip}"))

    def _bind_ipc(self, socket: Any, port: int) -> int:
        for candidate in [port] if port > 0 else range(1, 1000):
            path = f"{self.ip}-{candidate}"
            if port <= 0 and Path(path).exists():
                continue
            socket.bind(f"ipc://{path}")
            return candidate
        raise OSError(errno.EADDRINUSE, "no free name for an ipc socket")

    def _make_kernel(self) -> None:
        control = ZMQStream(self.control_socket, self.control_thread.io_loop)
        shell = ZMQStream(self.shell_socket)
        self.control_thread.start()
        self.kernel = ProseKernel.instance(
            parent=self,
            session=self.session,
            control_stream=control,
            control_thread=self.control_thread,
            shell_stream=shell,
            iopub_thread=self.iopub_thread,
            iopub_socket=self.iopub_thread.background_socket,
            stdin_socket=self.stdin_socket,
            log=self.log,
            language=languages.of_magic(self.language),
        )
        ports = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
        self.kernel.record_ports({name: getattr(self, name) for name in ports})

    # ------------------------------------------------------------ shutdown

    def close(self) -> None:
        """Close everything that `initialize` opened, in an order that lets the last messages out."""
        self.kernel.close()
        if self.control_thread.is_alive():
            self.control_thread.stop()
            self.control_thread.join(timeout=5)
        self.heartbeat.context.term()
        self.iopub_thread.stop()
        self.iopub_thread.close()
        for name in ("shell_socket", "control_socket", "stdin_socket"):
            socket = getattr(self, name)
            if not socket.closed:
                socket.close()
        self.zmq_context.term()
        self.cleanup_connection_file()
        with suppress(OSError):
            self.cleanup_ipc_files()
