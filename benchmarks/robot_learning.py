#!/usr/bin/env python
"""A robot that learns: a fake arm and its cameras on one host, buffer and learner on another, in real time.

    .venv/bin/python benchmarks/robot_learning.py                # learns undisturbed, recorded
    .venv/bin/python benchmarks/robot_learning.py --hurt         # with every other role hurt meanwhile, and a long cut
    .venv/bin/python benchmarks/robot_learning.py --quick        # some minutes, not recorded: a smoke run; also with --hurt
    .venv/bin/python benchmarks/robot_learning.py --control      # are an unsafe arm and lost steps found?
    .venv/bin/python benchmarks/robot_learning.py --dir PLACE    # its files in PLACE, which stay

What it measures: two network namespaces are the hosts, a veth pair the cable, TCP with keys (CURVE) what goes through it. The
arm of examples/robot_reach.yaml moves at 20 Hz behind its guard, with two cameras of 128 x 128 that alone show the goal. A
script that sees the goal drives 20 demonstrations, then stands by and takes the arm over where the policy comes no nearer. Half
of each batch are demonstrations and what it did. Then the newest policy drives 100 episodes without help, and so does one that
was cloned from the demonstrations alone. Asked for: success of 90 %, cloning at least 20 % below it, all within 90 minutes of
wall clock; no command carried out late or across a reset; every acknowledged step in the pool, once and in order.

With --hurt the actor is killed and stopped, buffer and learner are killed, stopped and cut off, twice each, while the arm
moves; the arm must have ceased to follow the policy within 2 periods (p99) of the fault and of what ages are declared. Then the
cable is cut for 10 minutes, in which the arm goes on and its steps wait in the spool. --control is a short run of an arm whose
guard cares for no age and whose spool is lost in the cut: exit code 0 when the same bars find both.

How long: 40 minutes, with --hurt 70; the arm's time is not to be shortened. It needs root, iproute2 and two cores of its own.
Each finished run adds a line to docs/results/robot_learning.jsonl; a seed that has passed is not repeated, a failed one only on
another commit. The line holds each episode in order (steps, steps of the human, success).

The last line on stdout is that record without its episodes, as one JSON object. Exit code 0: every bar is met.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from campaign import provenance, records
from campaign.process import Unable, guarded
from campaign.robot_run import HURT, QUICK, QUICK_HURT, WHOLE, control, measure
from campaign.spaces import move_in

FILE = records.RESULTS / "robot_learning.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of goals, noise, networks and faults")
    parser.add_argument("--hurt", action="store_true", help="hurt every other role meanwhile, and cut the cable for long")
    parser.add_argument("--quick", action="store_true", help="a short one, not recorded")
    parser.add_argument("--control", action="store_true", help="a short one that is sabotaged, not recorded")
    parser.add_argument("--dir", type=Path, help="new directory for all files, which stay; default: a temporary one")
    args = parser.parse_args()
    origin = provenance.commit()
    known = records.read(FILE)
    recorded = not args.quick and not args.control
    if recorded and not records.unpassed([(args.seed, args.hurt)], known, origin["commit"], "seed", "hurt"):
        print(json.dumps({"seed": args.seed, "hurt": args.hurt, "done": True}))
        return 0
    try:
        move_in()
    except Unable as error:
        print(f"cannot run: {error}", file=sys.stderr)
        return 1
    if args.control:
        with records.place(args.dir, "robot-") as place:
            found = control(place, args.seed)
        print(json.dumps(found))
        return 0 if found["passed"] else 1
    size = (QUICK_HURT if args.hurt else QUICK) if args.quick else (HURT if args.hurt else WHOLE)
    with records.place(args.dir, "robot-") as place:
        found = measure(place, args.seed, size, hurt=args.hurt)
    record = {"seed": args.seed, "hurt": args.hurt, "env": found.pop("env"), **found}
    record |= {"settings": vars(size), **origin, "machine": provenance.machine(), "date": provenance.stamp()}
    if recorded:
        records.append(FILE, record)
    print(json.dumps({key: value for key, value in record.items() if key != "episodes"}))
    return 0 if record["passed"] else 1


if __name__ == "__main__":
    sys.exit(guarded(main))
