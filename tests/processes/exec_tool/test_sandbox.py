"""Attempts of a confined program to get out: other sockets, shared memory, namespaces, other system interfaces."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from prose_kernel.language.structs import replace
from prose_kernel.processes.sandbox import mechanisms

from .conftest import PYTHON, SYSTEM, Bench, compiled, needs_landlock, result

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not mechanisms().filters, reason="no filter of system calls")

PROBE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *name, long found) {
  printf("%s %d\n", name, found < 0 ? (found == -1 ? errno : (int)-found) : 0);
  fflush(stdout);
}

#ifdef __x86_64__
static long old(long number, long one, long two, long three) {
  long found;
  __asm__ volatile("int $0x80" : "=a"(found) : "a"(number), "b"(one), "c"(two), "d"(three)
                   : "memory", "r8", "r9", "r10", "r11");
  return (int)found;
}
#endif

int main(int argc, char **argv) {
  int key = atoi(argv[1]);
  char name[64];
  for (int family = 0; family < 50; family++)
    for (int kind = 1; kind <= 5; kind++)
      if (family != AF_UNIX && (syscall(SYS_socket, family, kind, 0) >= 0 || errno != EAFNOSUPPORT)) say("socket", 0);
  int pair[2];
  say("unix", socket(AF_UNIX, SOCK_STREAM, 0));
  say("unix-pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  say("tipc-pair", socketpair(30, SOCK_STREAM, 0, pair));
  char room[256] = {0};
  say("io_uring", syscall(425, 8, room));
  say("keyctl", syscall(SYS_keyctl, 0, -3, 1, 0, 0));
  say("add_key", syscall(SYS_add_key, "user", "prose", "x", 1, -3));
  say("request_key", syscall(SYS_request_key, "user", "prose", 0, -3));
  int child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
  if (child == 0) _exit(0);
  say("clone-user", child);
  child = fork();
  if (child == 0) {
    say("unshare-user", unshare(CLONE_NEWUSER));
    say("unshare-more", unshare(CLONE_NEWUSER | CLONE_NEWNS));
    _exit(0);
  }
  waitpid(child, 0, 0);
  long flags[11] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
  child = syscall(435, flags, 64);
  if (child == 0) _exit(0);
  say("clone3", child);
  say("setns", setns(open("/proc/self/ns/uts", O_RDONLY), 0));
  say("shmget", shmget(key, 0, 0));
  say("semget", semget(key, 0, 0));
  say("msgget", msgget(key, 0));
  snprintf(name, sizeof name, "/prose-%d", key);
  say("mq_open", mq_open(name, O_RDONLY));
  say("shm_open", shm_open(name, O_RDWR, 0));
  snprintf(name, sizeof name, "/proc/self/cwd/../../../../../../dev/shm/prose-%d", key);
  say("shm_path", open(name, O_RDWR));
  say("bpf", syscall(SYS_bpf, 0, room, 72));
#ifdef __x86_64__
  say("x32-socket", syscall(0x40000000 | 41, AF_INET, SOCK_STREAM, 0));
  say("x32-unshare", syscall(0x40000000 | 272, CLONE_NEWUSER));
  say("i386-socket", old(359, AF_INET, SOCK_STREAM, 0));
  say("i386-socket-vsock", old(359, 40, SOCK_STREAM, 0));
  say("i386-socketcall", old(102, 1, 0, 0));
  say("i386-unshare", old(310, CLONE_NEWUSER, 0, 0));
  say("i386-clone3", old(435, 0, 0, 0));
  say("i386-io_uring", old(425, 1, 0, 0));
  say("i386-keyctl", old(288, 0, -3, 1));
  say("i386-ipc", old(117, 23, key, 0));
  say("i386-shmget", old(395, key, 0, 0));
  say("i386-prlimit", old(340, getppid(), 7, 0));
#endif
  return 0;
}
"""
FREE = {"unix", "unix-pair"}


@dataclass
class Shared:
    """Memory, semaphores and queues of another process: this test."""

    key: int
    directory: Path


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    libc, key = ctypes.CDLL(None, use_errno=True), 0x5052_0000 + os.getpid() % 0xFFFF
    create = 0o1000 | 0o600
    memory, semaphores, messages = libc.shmget(key, 4096, create), libc.semget(key, 1, create), libc.msgget(key, create)
    name = f"/prose-{key}".encode()
    queue = libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None)
    assert min(memory, semaphores, messages, queue) >= 0
    file = Path(f"/dev/shm/prose-{key}")
    file.write_text("theirs")
    try:
        yield Shared(key, tmp_path)
    finally:
        assert file.read_text() == "theirs"
        file.unlink()
        libc.shmctl(memory, 0, None)
        libc.semctl(semaphores, 0, 0)
        libc.msgctl(messages, 0, None)
        os.close(queue)
        libc.mq_unlink(name)


async def succeeded(bench: Bench, shared: Shared, **record: object) -> set[str]:
    """Return the attempted calls that succeed in a program of an agent with these rules."""
    probe = compiled(shared.directory, "probe", PROBE)
    agent = bench.agent(("/", "r"), **record)
    answer = result(await bench(str(probe), str(shared.key), agent=agent))
    results = [line.split() for line in str(answer["stdout"]).splitlines()]
    assert answer["exit_code"] == 0 and len(results) > 20, answer
    return {name for name, error in results if error == "0"}


@pytest.mark.parametrize("apart", [True, False])
async def test_a39_nothing_but_unix_sockets_under_network_deny(bench: Bench, shared: Shared, apart: bool) -> None:
    """This holds with namespaces, and with only the filter."""
    if apart and not (mechanisms().apart and not mechanisms().network):
        pytest.skip("no namespaces here")
    if not apart:
        bench.use(lambda: replace(mechanisms(), apart=False))
    assert await succeeded(bench, shared, network="none") == FREE


@needs_landlock
@pytest.mark.parametrize("apart", [True, False])
async def test_a39_shared_objects_of_other_processes_are_out_of_reach(
    bench: Bench, shared: Shared, apart: bool
) -> None:
    """The network is open: sockets are allowed, and nothing else."""
    if not apart:
        bench.use(lambda: replace(mechanisms(), apart=False))
    found = await succeeded(bench, shared, network="open")
    assert found >= FREE and found <= FREE | {"socket", "i386-socket", "i386-socket-vsock", "tipc-pair"}


async def test_a39_best_effort_denies_all_sockets_where_calls_can_be_filtered(bench: Bench, shared: Shared) -> None:
    bench.use(lambda: replace(mechanisms(), network="not here", apart=False))
    assert await succeeded(bench, shared, network="best-effort") == FREE
    assert not any("network" in line for line in bench.warnings)


async def test_a39_without_a_filter_a_denied_network_is_refused(bench: Bench) -> None:
    bench.use(lambda: replace(mechanisms(), filters=False))
    outcome = await bench("/bin/true", agent=bench.agent(("/", "r"), network="none"))
    assert outcome.error == "tool_failed" and "filter" in outcome.message


WORKS = """
import multiprocessing, subprocess, tempfile, threading, asyncio, sys
lock = multiprocessing.Lock()
with lock: pass
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
print(subprocess.run(["/bin/echo", "child"], capture_output=True, text=True).stdout.strip())
async def main(): await asyncio.sleep(0); return "loop"
print(asyncio.run(main()))
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=100); memory.close(); memory.unlink()
print("shared")
"""


@pytest.mark.skipif(not mechanisms().apart, reason="no namespaces here")
async def test_a39_ordinary_programs_still_work(bench: Bench) -> None:
    for network in ("none", "open"):
        agent = bench.agent(("/", "r"), network=network)
        answer = result(await bench(PYTHON, "-I", "-c", WORKS, agent=agent))
        assert str(answer["stdout"]).split() == ["thread", "child", "loop", "shared"], answer


@needs_landlock
async def test_a39_bound_lists_do_not_open_shared_memory(bench: Bench, shared: Shared) -> None:
    agent = bench.agent(*SYSTEM, (str(shared.directory), "r"), lists_bind="strict")
    answer = result(await bench("/bin/cat", f"/dev/shm/prose-{shared.key}", agent=agent))
    assert answer["exit_code"] == 1 and answer["stdout"] == ""
