"""Withholds environment variables that look like secrets from agents' commands (exec-and-tasks.md 4.1)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from prose_kernel.runtime.secret_patterns import holds_private_key, tokens_in

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
