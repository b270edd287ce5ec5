#!/usr/bin/env bash
# Two hosts on one machine, to try docs/many-hosts.md: network namespaces `near` and `far`, and a cable between them.
#   sudo examples/hosts/two_hosts.sh up  # near is 10.77.0.1 and fd77::1, far 10.77.0.2 and fd77::2
#   sudo examples/hosts/two_hosts.sh near  # a shell on near; with words a command there. far likewise
#   sudo examples/hosts/two_hosts.sh cut | mend  # the cable
#   sudo examples/hosts/two_hosts.sh down
# It needs root and iproute2, and touches nothing else of this machine. HEADRACE_HOSTS names another pair than `headrace`.
set -euo pipefail

space() { echo "${HEADRACE_HOSTS:-headrace}-$1"; }
inside() { ip -n "$(space "$1")" "${@:2}"; }

up() {
  ip netns add "$(space near)"
  ip netns add "$(space far)"
  inside near link add cable type veth peer name cable netns "$(space far)"
  for host in near far; do
    [ "$host" = near ] && number=1 || number=2
    inside "$host" addr add "10.77.0.$number/24" dev cable
    inside "$host" addr add "fd77::$number/64" dev cable nodad
    inside "$host" link set lo up
    inside "$host" link set cable up
  done
}

case ${1:-} in
  up) up ;;
  down) for host in near far; do ip netns delete "$(space "$host")"; done ;;
  cut) inside near link set cable down ;;
  mend) inside near link set cable up && inside near addr replace fd77::1/64 dev cable nodad ;;
  near | far)
    host=$1
    shift
    [ "$#" -gt 0 ] || set -- "${SHELL:-/bin/sh}"
    exec nsenter --net="/run/netns/$(space "$host")" "$@" # not `ip netns exec`, which hides the limits of memory
    ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
