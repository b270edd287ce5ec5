#!/usr/bin/env bash
# Makes .venv and installs headrace with its pinned packages; does nothing when that is done already.
#
#   launch/setup.sh        what a training run needs
#   launch/setup.sh dev    the same, and what the tests and checks need
#
# HEADRACE_PYTHON   interpreter for a new .venv; default: the first Python >= 3.10 that is found
# HEADRACE_TORCH    words for `pip install` that choose the build of torch; default: torch==2.13.0, which is the
#                   CUDA build on Linux. For the CPU build add the wheel index that pytorch.org's "Start locally"
#                   page shows for it: HEADRACE_TORCH="torch==2.13.0 --index-url URL"
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
want=${1:-train}
case $want in
  train) extras=train,mujoco,data stamps=(train) ;;
  dev) extras=train,mujoco,data,dev stamps=(train dev) ;;
  *) echo "setup.sh: unknown set '$want'; say nothing or 'dev'" >&2; exit 2 ;;
esac
torch=${HEADRACE_TORCH:-torch==2.13.0}
new_enough='import sys; sys.exit(sys.version_info < (3, 10))'

find_python() {
  local name
  for name in ${HEADRACE_PYTHON:-python3 python3.13 python3.12 python3.11 python3.10}; do
    if "$name" -c "$new_enough" >/dev/null 2>&1; then echo "$name"; return; fi
  done
  echo "setup.sh: no Python >= 3.10 found (looked for: ${HEADRACE_PYTHON:-python3, python3.10 to python3.13}); set HEADRACE_PYTHON" >&2
  return 1
}

state=$({ cat "$root/constraints.txt" "$root/pyproject.toml"; echo "$root $torch"; } | sha256sum | cut -c1-64)
stamp=$root/.venv/.headrace-$want
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$state" ]; then exit 0; fi

trap 'echo "setup.sh: interrupted; start it again to go on" >&2; exit 130' INT
venv=$root/.venv
unfinished=$venv/.headrace-unfinished  # there from before .venv is made until it is whole
if [ -e "$venv" ] && { [ -e "$unfinished" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
  echo "setup.sh: .venv is unfinished, an earlier set-up was cut short; making it anew" >&2
  rm -rf "$venv"
fi
if [ ! -e "$venv" ]; then
  python=$(find_python)
  echo "setup.sh: making .venv with $("$python" --version)" >&2
  mkdir "$venv"
  : >"$unfinished"
  # What it says is shown when it fails, not when it is interrupted: that is a traceback.
  if ! said=$("$python" -m venv "$venv" 2>&1); then
    rm -rf "$venv"
    echo "$said" >&2
    echo "setup.sh: '$python -m venv' failed; Debian and Ubuntu keep it in a package: apt install python3-venv" >&2
    exit 1
  fi
  rm "$unfinished"
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
echo "setup.sh: installing packages; the first time torch is the largest part, up to about 3 GB with CUDA, 0.2 GB without" >&2
# torch alone and first: it has several builds, and what follows must not change the one that was chosen.
# shellcheck disable=SC2086  # HEADRACE_TORCH is several words on purpose
"${pip[@]}" install $torch
"${pip[@]}" install -c "$root/constraints.txt" -e "$root[$extras]"
for name in "${stamps[@]}"; do echo "$state" >"$venv/.headrace-$name"; done
