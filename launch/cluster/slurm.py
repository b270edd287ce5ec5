"""A plan as jobs of Slurm: buffers and learner as one heterogeneous job, actors and evaluator as an array beside it.

Hosts of buffers are names of Slurm's nodes, since others dial them; all others only dial, and run wherever Slurm puts them.
Working directory and run directory are on a file system that all nodes share.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from headrace.common.errors import ConfigError
from headrace.launch.cluster.plan import ACTOR, EVALUATOR, Start, ranks_words, torchrun_of
from headrace.launch.cluster.topology import Topology
from headrace.launch.exits import MUST_NOT_RESTART, USAGE
from headrace.launch.supervision import LEARNER

# srun answers SIGTERM by killing its step; a signal for the processes of a job is what scancel sends.
KEEP = f"""# keep JOB WORDS of srun: a step that is started again when it dies. What would fail in the same way again ends it.
keep() {{
  local job=$1 child='' code=0 ended=''
  shift
  trap 'ended=1; scancel --signal=TERM "$job"' TERM
  for _ in {{1..20}}; do
    [ -z "$ended" ] || exit "$code"
    srun "$@" & child=$!
    until_gone "$child"
    case $code in 0 | {USAGE} | {MUST_NOT_RESTART}) exit "$code" ;; esac
    [ -n "$ended" ] || echo "a step has ended with $code; once more"
    sleep 2
  done
  exit "$code"
}}
until_gone() {{
  while wait "$1"; kill -0 "$1" 2>/dev/null; do :; done  # a trap ends a wait
  wait "$1"; code=$?  # and what it missed is remembered
}}

# The time limit comes, or somebody cancels: the role ends in order; in the first case the same job goes on from there.
expiring=''
trap 'expiring=1; kill -TERM "$main" 2>/dev/null' USR1
trap 'kill -TERM "$main" 2>/dev/null' TERM
"""

HEAD = """#!/usr/bin/env bash
# {name}, made by `headrace launch plan`: sbatch {name}.sbatch && sbatch {name}-actors.sbatch
"""

JOB = """{buffers}
{learner} & main=$!
until_gone "$main"
ended=$code
[ -n "$expiring" ] || sleep 5  # in which actors and evaluator hear that the run is done
kill -TERM "${{buffers[@]}}"
for buffer in "${{buffers[@]}}"; do until_gone "$buffer"; done
if [ -n "$expiring" ]; then
  scontrol requeue "$SLURM_JOB_ID"
else
  scancel --quiet --name={name}-actors  # who did not hear it
fi
exit "$ended"
"""

ARRAY = """ids=({ids})
id=${{ids[$SLURM_ARRAY_TASK_ID]}}
evaluate=()
[ "$id" != {evaluator} ] || evaluate=(--evaluate)
keep "$SLURM_JOB_ID" {command} "${{evaluate[@]}}" & main=$!
until_gone "$main"
[ -z "$expiring" ] || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
"""


def slurm_files(topology: Topology, starts: Sequence[Start]) -> dict[str, str]:
    """``NAME.sbatch`` for buffers and learner, ``NAME-actors.sbatch`` for the others if there are any.

    Raises:
        ConfigError: ranks differ between hosts, where each part of a job has one shape.
    """
    counts = sorted({place.count for place in topology.ranks})
    if len(counts) > 1:
        raise ConfigError(
            f"ranks: {counts[0]} on one host and {counts[-1]} on another, but the learner's part of a Slurm job has the same on"
            f" each; nearest valid: {counts[0]} on all"
        )
    files = {f"{topology.name}.sbatch": _job(topology, starts)}
    players = [start for start in starts if start.kind in (ACTOR, EVALUATOR)]
    if players:
        files[f"{topology.name}-actors.sbatch"] = _array(topology, players)
    return files


def _job(topology: Topology, starts: Sequence[Start]) -> str:
    slurm, name = topology.slurm, topology.name
    lines = _options(topology, name, f"{name}-%j.log", *slurm.options)
    for number, place in enumerate(topology.buffers):
        part = ("hetjob",) if number else ()
        lines += [*part, f"--nodes=1 --ntasks=1 --nodelist={place.host}", *slurm.options * bool(number), *slurm.buffers]
    nodes = f"--nodes={len(topology.ranks)} --ntasks-per-node=1"
    lines += ["hetjob", nodes, *slurm.options, *slurm.ranks]
    body = JOB.format(name=name, buffers=_buffer_steps(starts), learner=_learner_step(topology, starts))
    return _script(topology, lines, body)


def _buffer_steps(starts: Sequence[Start]) -> str:
    steps = ["buffers=()"]
    for group, start in enumerate(s for s in starts if s.kind == "buffer"):
        steps.append(f"keep {_group(group)} {shlex.join(start.words)} & buffers+=($!)")
    return "\n".join(steps)


def _learner_step(topology: Topology, starts: Sequence[Start]) -> str:
    group, nodes = len(topology.buffers), len(topology.ranks)
    first = next(start for start in starts if start.kind == LEARNER)
    if nodes == 1:
        return f"keep {_group(group)} {shlex.join(first.words)}"
    # Which nodes they are is known when they run, and the first of them is where ranks meet.
    where = ranks_words(nodes, "$SLURM_NODEID", topology.ranks[0].count, "$master", topology.meeting_port)
    role = shlex.join(first.words[first.words.index("-m") :])
    line = f"exec {shlex.quote(torchrun_of(topology.command))} {' '.join(where)} {role}"
    master = f'export master=$(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_{group}" | head -n 1)\n'
    return f"{master}keep {_group(group)} --kill-on-bad-exit=1 bash -c {shlex.quote(line)}"


def _group(number: int) -> str:
    return f'"$SLURM_JOB_ID_HET_GROUP_{number}" --het-group={number}'


def _array(topology: Topology, players: Sequence[Start]) -> str:
    slurm, name = topology.slurm, topology.name
    log, several = f"{name}-actors-%a.log", f"--array=0-{len(players) - 1}"
    lines = _options(topology, f"{name}-actors", log, several, "--ntasks=1")
    ids = " ".join(shlex.quote(start.name) for start in players)
    words = players[0].words  # of all of them, but for the id and whether it evaluates
    command = " ".join('"$id"' if w == players[0].name else shlex.quote(w) for w in words if w != "--evaluate")
    body = ARRAY.format(ids=ids, evaluator=EVALUATOR, command=command)
    return _script(topology, [*lines, *slurm.options, *slurm.actors], body)


def _options(topology: Topology, name: str, log: str, *words: str) -> list[str]:
    again = ["--open-mode=append", "--requeue", f"--signal=B:USR1@{topology.slurm.notice_s}"]
    return [f"--job-name={name}", f"--chdir={topology.directory}", f"--output={log}", *again, *words]


def _script(topology: Topology, options: Sequence[str], body: str) -> str:
    return HEAD.format(name=topology.name) + "".join(f"#SBATCH {word}\n" for word in options) + "\n" + KEEP + "\n" + body
