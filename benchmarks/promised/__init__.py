"""The promises, one module each: ``pNN_what.py`` with one :class:`campaign.promise.Promise` named ``PROMISE``.

A module is found by its name, so adding one touches no other file. The smallest one that says something::

    \"\"\"P99: what is written can be read again.\"\"\"

    from __future__ import annotations

    from campaign.promise import Outcome, Part, Promise, Trial, at_most, never

    def run(trial: Trial) -> Outcome:
        path = trial.place / "file"              # a directory of the trial's own
        data = trial.rng.bytes(10 if trial.quick else 10_000)
        path.write_bytes(data)
        lost = len(data) - len(path.read_bytes())
        return Outcome({"lost": lost, "read_s": 0.1})

    PROMISE = Promise("P99", "What is written can be read again.", (
        Part("files", 100, run, (*never("lost"), *at_most("read_s", 1.0))),
    ))

Then `promises.py --only P99 --quick` makes one small trial, `promises.py --only P99` all hundred and their records, and
`report.py` puts the row into the results page (which a test holds against the modules and records: run it with each of them).
Rules:

- A trial makes its chance with ``trial.rng`` alone, and its files below ``trial.place``; it ends what it starts.
- What it counts goes into ``figures``, each with a bar or with ``told(...)``; what cannot be counted into ``problems``. An
  AssertionError, OSError, ProcessFailed or headrace error that it raises is a problem too; any other exception is a defect
  of the module and ends the campaign.
- A judgement that cannot fail proves nothing: ``control`` plants faults, and each must be found before any trial counts.
- A machine that cannot make the trial: raise :class:`campaign.process.Unable` with what is missing (root, a program).
- What another script records already is a :class:`campaign.promise.Recorded` row, not a second way to measure it.
- Real roles on this host: ``from helpers.roles import roles, scripted`` (tests/helpers).
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys

from campaign.promise import Part, Promise
from campaign.records import ROOT

_NAME = re.compile(r"p(\d\d)_\w+")
_TESTS = str(ROOT / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)


def promises() -> dict[str, Promise]:
    """Number -> promise, in order.

    Raises:
        ValueError: a module's name and its promise's number differ, or two have one number.
    """
    found: dict[str, Promise] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        named = _NAME.fullmatch(module.name)
        if named is None:
            continue
        promise: Promise = importlib.import_module(f"{__name__}.{module.name}").PROMISE
        if promise.number != f"P{int(named[1])}" or promise.number in found:
            raise ValueError(f"promised/{module.name}.py has promise {promise.number}; a module of that number has it alone")
        found[promise.number] = promise
    return found


def parts_of(promises: dict[str, Promise]) -> dict[str, Part]:
    """``P12/name`` -> each part that promises.py makes itself."""
    return {f"{p.number}/{part.name}": part for p in promises.values() for part in p.parts if isinstance(part, Part)}
