#!/usr/bin/env bash
# Sets up .venv when needed, then runs the tests: tests/run.sh [pytest words ...]
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
"$root/launch/setup.sh" dev
cd "$root"
exec .venv/bin/pytest "$@"
