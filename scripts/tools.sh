#!/usr/bin/env bash
# Installs the programs that tests need and pip cannot bring: as root on Debian and Ubuntu, with one call of apt-get.
# Elsewhere, and when that fails, it says what is missing and goes on: the tests say which of them are skipped.
set -uo pipefail
log=${1:-/dev/null}

# program, or one of several = packages that bring it
wanted=(
  zsh=zsh busybox=busybox mksh=mksh ksh=ksh bwrap=bubblewrap ps=procps setpriv=util-linux node=nodejs
  "cc=gcc libc6-dev" "chromium|chromium-browser|google-chrome=chromium fonts-dejavu-core"
)

missing() { # of one group of names: its packages, when none of the programs is here
  local program
  for program in ${1//|/ }; do command -v "$program" >/dev/null && return; done
  echo "$2"
}

all_missing() { for each in "${wanted[@]}"; do missing "${each%%=*}" "${each#*=}"; done; }

install() { DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" </dev/null >>"$log" 2>&1; }

mapfile -t packages < <(all_missing)
[ ${#packages[@]} = 0 ] && exit
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing what tests need: ${packages[*]}"
  # shellcheck disable=SC2068 # one entry may be several packages
  { apt-get update -q </dev/null >"$log" 2>&1; } && install ${packages[@]} ||
    for package in ${packages[@]}; do install "$package"; done # one that is not to be had takes no other along
fi
mapfile -t packages < <(all_missing)
[ ${#packages[@]} = 0 ] && exit
echo "*** NOT INSTALLED: ${packages[*]}; THE TESTS THAT NEED THEM ARE SKIPPED"
[ -s "$log" ] && tail -n 5 "$log"
exit 0
