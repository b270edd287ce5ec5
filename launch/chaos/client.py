"""One actor, robot or evaluator of a chaos job: the product's own, with a witness in it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from headrace.actor.envs import make_spec
from headrace.actor.evaluator import EvaluatorSettings, run_evaluator
from headrace.actor.joining import ActorSettings
from headrace.actor.loop import run as act
from headrace.launch.chaos.history import History, own_path
from headrace.launch.chaos.robot import run_robot
from headrace.launch.chaos.sabotage import FINDS, Saboteur
from headrace.launch.chaos.witness import WitnessPolicy, WitnessUplink
from headrace.launch.exits import FAILED, MUST_NOT_RESTART, leave
from headrace.launch.roles import guarded
from headrace.launch.targets import load_target

CLIENT = "client"  # kind of its histories


def main(words: Sequence[str] | None = None) -> NoReturn:
    """``python -m headrace.launch.chaos.client RUN --connect ENDPOINT --id NAME --history DIR``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="run directory (path)")
    parser.add_argument("--connect", required=True, help="where the buffer, or a proxy before it, listens")
    parser.add_argument("--id", required=True, help="its name (text)")
    parser.add_argument("--history", type=Path, required=True, help="directory for its history (path)")
    parser.add_argument("--evaluate", action="store_true", help="be the evaluator")
    parser.add_argument("--spool", type=Path, help="be a robot whose rows lie in this directory (path)")
    parser.add_argument("--sabotage", choices=tuple(FINDS), help="lie once, for the checker to find")
    args = parser.parse_args(words)
    code = guarded(args.id, lambda: _play(args))
    # A campaign starts a second process of one id on purpose, so that who is turned away may be started again.
    leave(FAILED if code == MUST_NOT_RESTART else code)


def _play(args: argparse.Namespace) -> int:
    config, _ = load_target(args.run)
    role = "evaluator" if args.evaluate else "actor"
    about = {"role": role, "id": args.id, "spooled": args.spool is not None}
    history = History(own_path(args.history, CLIENT, args.id), about)
    lies: dict[str, Any] = {}
    if args.sabotage:
        spec = make_spec(config.env, config.window)
        saboteur = Saboteur(args.sabotage, spec, config.pool.capacity, history)
        lies = {"meddle": saboteur, "keeps": saboteur.keeps}
    made: list[WitnessUplink] = []

    def make_uplink(*args: Any) -> WitnessUplink:
        made.append(WitnessUplink(*args, history=history, **lies))
        return made[-1]

    player = ActorSettings(args.connect, args.id, config.env, config.window, config.actor, config.network, config.seed)
    if args.evaluate:
        settings = EvaluatorSettings(player, config.eval.every, config.eval.episodes)
        code = run_evaluator(settings, make_uplink=make_uplink, make=WitnessPolicy)
    elif args.spool is not None:
        code = run_robot(player, args.spool, make_uplink)
    else:
        code = act(player, make_uplink=make_uplink, make=WitnessPolicy)
    history.write("ended", sum(uplink.unacknowledged for uplink in made))
    return code


if __name__ == "__main__":
    main()
