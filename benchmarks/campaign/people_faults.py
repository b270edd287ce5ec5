"""Planted faults where people take part: who acted, what was executed, take-over and giving back, words, a paused run."""

from __future__ import annotations

from campaign.planting import Mutant

PEOPLE_TEST = ("tests/unit/actor/test_people.py",)
RECORDER, LANES, HUMAN = "actor/recorder.py", "actor/gym_lanes.py", "actor/gym_human.py"

PEOPLE = (
    # people inside an env
    Mutant("a-human-step-is-told-as-the-policys", RECORDER, "decided=decided, source=source,", "decided=decided,", PEOPLE_TEST),
    Mutant(
        "a-human-step-stores-what-was-asked-for",
        LANES,
        "executed[lane], source[lane] = action, SOURCE_HUMAN",
        "source[lane] = SOURCE_HUMAN",
        PEOPLE_TEST,
    ),
    Mutant(
        "a-human-step-that-ends-in-same-step-is-lost",
        LANES,
        'told = infos.get("final_info", {}) if same_step and ended[lane] else infos',
        "told = infos",
        PEOPLE_TEST,
    ),
    Mutant(
        "the-intervene-flag-says-nothing",
        HUMAN,
        "info.get(ACTION) is None or not _is_up(info.get(FLAG, True))",
        "info.get(ACTION) is None",
        PEOPLE_TEST,
    ),
    Mutant(
        "a-chunk-goes-on-behind-a-human",
        RECORDER,
        "self.anew[lane] = source == SOURCE_HUMAN",
        "self.anew[lane] = False",
        PEOPLE_TEST,
    ),
    Mutant(
        "each-human-step-begins-a-chunk",
        RECORDER,
        "begins = acts.begins[lane] and not (source == SOURCE_HUMAN and assembler.may_go_on)",
        "begins = acts.begins[lane]",
        PEOPLE_TEST,
    ),
)
