#!/usr/bin/env bash
# install.sh PYTHON ARGUMENTS...: pip install ARGUMENTS into the environment of PYTHON.
# uv does it in a sixth of pip's processor time. uv does not read pip's configuration, so pip does it where pip has another index
# than PyPI, and also where uv is missing or fails.
set -euo pipefail
python=$1
shift
settings=$("$python" -m pip config list 2>/dev/null || true)

with_uv() {
  local uv=.venv/bin/uv certificates
  [ "${UV-1}" = 1 ] && [ -x "$uv" ] && ! grep -qE '\.(index-url|no-index)=' <<<"$settings" || return
  certificates=$(sed -nE "s/.*\.cert='(.*)'/\1/p" <<<"$settings" | tail -n 1)
  # Without --reinstall-package, uv would not copy the kernelspecs and the labextension again.
  env ${certificates:+SSL_CERT_FILE="$certificates"} "$uv" pip install -q --python "$python" --reinstall-package prose-kernel "$@"
}

with_pip() {
  local install=("$python" -m pip install -q --disable-pip-version-check)
  "${install[@]}" --upgrade "pip>=25.1" # the first version that knows --group
  "${install[@]}" "$@"
}

with_uv "$@" || with_pip "$@"
