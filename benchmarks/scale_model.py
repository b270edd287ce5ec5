#!/usr/bin/env python
"""Scale on paper: where the next limit of a fleet is, from what was measured of one buffer. Nothing is run.

    .venv/bin/python benchmarks/scale_model.py                       # 10,000 actors, 8 shards, 64 ranks
    .venv/bin/python benchmarks/scale_model.py --actors 2000 --shards 2 --rate 50 --flush-s 0.05

What it measures: nothing. It multiplies what docs/results/sessions.jsonl and pool.jsonl hold of one buffer (processor time of a
beat, a block, a row, a batch, a byte of weights; memory of a session; time of a storm) by what a shard of the fleet has to do,
and puts each sum beside what there is of it. A part of 1 or more is a limit that the fleet would meet. docs/scale.md has the
table, which benchmarks/report.py writes, and says what is not in it.

How long: no time. The last line on stdout is one JSON object: rows -> limit -> part of what there is.
"""

from __future__ import annotations

import argparse
import json
import sys

from campaign import records
from campaign.scaling import FLEET, KINDS, Costs, limits_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in FLEET._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default: {value}")
    fleet = FLEET._replace(**vars(parser.parse_args()))
    costs = Costs.read(records.RESULTS)
    out = {}
    for kind in KINDS:
        found = limits_of(fleet, costs, kind)
        print(f"{kind} rows:")
        for limit in found:
            print(f"  {limit.part:7.2f}  {limit.what}: {limit.has} of {limit.there_is}; moved by {limit.knob}")
        out[kind] = {limit.what: round(limit.part, 3) for limit in found}
    print(json.dumps(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
