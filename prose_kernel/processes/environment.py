"""The environments of agents' programs: for `Exec` made from scratch with only listed names (exec-and-tasks.md 3.5),
for tasks without the variables that look like secrets (4.1)."""

from __future__ import annotations

import fnmatch
import os
import pwd
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from prose_kernel.runtime.secret_patterns import holds_private_key, tokens_in

REFUSED = (  # noqa: SIM905 - as a list it is five times as long
    "LD_* DYLD_* GCONV_PATH LOCPATH BASH_ENV ENV BASH_FUNC_* SHELLOPTS BASHOPTS IFS PS4 PROMPT_COMMAND "
    "PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUSERBASE PYTHONBREAKPOINT PYTHONWARNINGS PYTHONINSPECT "
    "PYTHONPYCACHEPREFIX PYTHONPLATLIBDIR PYTHONEXECUTABLE PERL5OPT PERL5LIB PERLLIB PERL5DB RUBYOPT RUBYLIB "
    "NODE_OPTIONS NODE_PATH JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS GIT_SSH* GIT_EXTERNAL_DIFF "
    "GIT_CONFIG* GIT_EXEC_PATH GIT_EDITOR GIT_PAGER GIT_ASKPASS GIT_PROXY_COMMAND GIT_SEQUENCE_EDITOR GIT_DIR "
    "GIT_COMMON_DIR GIT_TEMPLATE_DIR GIT_TRACE* SSH_ASKPASS* PAGER EDITOR VISUAL LESSOPEN LESSCLOSE MANPAGER "
    "BROWSER "
    # modules that libraries load
    "GLIBC_TUNABLES MALLOC_TRACE OPENSSL_CONF OPENSSL_ENGINES OPENSSL_MODULES SSLKEYLOGFILE SASL_PATH "
    "KRB5_CONFIG GTK_MODULES GTK_PATH GIO_EXTRA_MODULES GIO_MODULE_DIR GDK_PIXBUF_MODULE* GST_PLUGIN* "
    "QT_PLUGIN_PATH QT_QPA_PLATFORM_PLUGIN_PATH "
    # settings and start files that name programs
    "ZDOTDIR RIPGREP_CONFIG_PATH WGETRC SYSTEM_WGETRC CURL_HOME GNUPGHOME HGRCPATH TAR_OPTIONS RSYNC_RSH "
    "SVN_SSH CVS_RSH VIMINIT EXINIT "
    # where programs are found, and the programs that build tools start
    "PATH CC CXX CPP LD AR AS "
    # the markers of our own commands, by which a gate recognizes the deciding process
    "PROSE_* "
    # interpreters and build tools
    "MAKEFLAGS GNUMAKEFLAGS MAKEFILES AWKPATH AWKLIBPATH LUA_INIT* LUA_PATH* LUA_CPATH* PHPRC PHP_INI_SCAN_DIR "
    "TCLLIBPATH CLASSPATH R_PROFILE* R_ENVIRON* JULIA_LOAD_PATH JULIA_DEPOT_PATH DOTNET_STARTUP_HOOKS "
    "CORECLR_* GEM_HOME GEM_PATH BUNDLE_GEMFILE npm_config_* NPM_CONFIG_* ERL_*FLAGS GOFLAGS "
    "CARGO_BUILD_RUSTC* CARGO_TARGET_* RUSTC* "
).split()
"""Names that an agent may not set: with them a harmless program would load or start code that the agent chooses."""

TMP: Final = "/tmp"  # noqa: S108 - only a value of HOME: no file is created there
_FALLBACKS = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "SHELL": "/bin/sh",
}


def refused_name(name: str, further: Iterable[str] = ()) -> bool:
    """Return whether a caller may not set this variable."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in (*REFUSED, *further))


def build(kernel: Mapping[str, str], given: Mapping[str, str], home: str | None = None) -> dict[bytes, bytes]:
    """Return the environment of a program (docs/reference/exec-and-tasks.md 3.5): the variables of the safe list, then
    the `given` ones. The safe list has fixed values if `home` is `TMP`, else the kernel's; `home` replaces `HOME`."""
    if home == TMP:
        kernel = {"USER": kernel.get("USER", "")}
    values = {name: kernel.get(name) or fallback for name, fallback in _FALLBACKS.items()}
    values["USER"] = kernel.get("USER") or _account(os.geteuid())[0]
    values["HOME"] = home or kernel.get("HOME") or _account(os.geteuid())[1]
    values.update(given)
    return {os.fsencode(name): os.fsencode(value) for name, value in values.items()}


def _account(number: int) -> tuple[str, str]:
    """Return the name and the home directory of a user."""
    try:
        found = pwd.getpwuid(number)
    except KeyError:
        return str(number), "/"
    return found.pw_name, found.pw_dir


# ---------------------------------------------------------------- tasks

_WITHHELD: Final = re.compile(
    r"\AAWS_|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY|COOKIE"
    r"|_(?:KEY|PAT|PASS|PWD|AUTH)\Z"
)

_USER: Final = re.compile(r"://(?:[^\s/:@]*:[^\s/@]+|[^\s/:@]{16,})@")
"""A URL with a password, or with a long user name, which is then a key."""


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name is withheld from agents' commands."""
    return _WITHHELD.search(name.upper()) is not None


def without_secrets(environment: Mapping[bytes, bytes], allowed: Collection[str]) -> dict[bytes, bytes]:
    """Return the environment without the variables that look like secrets, by name or value; `allowed` names stay."""
    return {
        name: value
        for name, value in environment.items()
        if (text := name.decode("utf-8", "replace")) in allowed
        or not (is_secret_name(text) or holds_secret(value.decode("utf-8", "replace")))
    }


def holds_secret(value: str) -> bool:
    """Return whether a value has the form of a secret, or contains one."""
    return bool(_USER.search(value) or tokens_in(value).search(value)) or holds_private_key(value)
