#!/usr/bin/env bash
# Sets up .venv when needed, then trains: launch/local.sh [CONFIG.yaml] [--key.path value ...]
# Without a config it trains Pendulum-v1. `headrace train --help` lists every key; setup.sh says how to choose torch.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
"$root/launch/setup.sh"
case ${1:-} in
  --resume* | -h | --help) ;;
  "" | --*) set -- "$root/examples/pendulum.yaml" "$@" ;;
esac
exec "$root/.venv/bin/headrace" train "$@"
