"""What the records of `headrace chaos` say: only campaigns that are whole count, and one fault fails them."""

from __future__ import annotations

from campaign.chaotic import ASKED, KILLS, TRIALS, chaos_line, chaos_section, newest, tell
from campaign.gate import FAILED, NOT_RUN, PASSED, UNFINISHED

from headrace.launch.chaos.schedule import KINDS, ROLES
from headrace.launch.chaos.verdict import KINDS as FAULTS

ROW = tell(("lost", "torn"), TRIALS, {"kills of actor": KILLS, "swaps": 10})


def record(**changes):
    table = {kind: {"trials": TRIALS, "failures": 0, "bound_95": 3e-6} for kind in FAULTS}
    base = {
        **dict.fromkeys(FAULTS, 0),
        "passed": True,
        "trials": TRIALS,
        "kills": 4 * KILLS,
        "kills_by_role": dict.fromkeys(ROLES, KILLS),
        "controls_fired": 1,
        "controls": {"drop": True, "honest": True},
        "faults": {"kill": 4 * KILLS, "pause": 3},
        "table": table,
        "figures": {"swaps": 10, "acked": TRIALS},
        "minutes": 60.0,
        "seed": 0,
        "kinds": list(KINDS),
        "commit": "c",
        "dirty": False,
        "date": "2026-01-01T00:00:00Z",
    }
    return {**base, **changes}


def failed():
    table = {**record()["table"], "lost": {"trials": TRIALS, "failures": 2, "bound_95": 1e-5}}
    return record(passed=False, lost=2, table=table)


def test_only_whole_campaigns_count_and_the_newest_of_each_seed():
    assert newest([record(minutes=2.0), record(kinds=["kill"])]) == []
    assert len(newest([record(kinds=sorted(ASKED))])) == 1
    assert [r["trials"] for r in newest([record(trials=1), record(trials=2), record(seed=1, trials=3)])] == [2, 3]


def test_the_verdict():
    few = record(kills_by_role={**dict.fromkeys(ROLES, KILLS), "learner": KILLS - 1})
    states = [chaos_line(lines).state for lines in ([], [record()], [record(trials=TRIALS - 1)], [few], [failed()])]
    assert states == [NOT_RUN, PASSED, UNFINISHED, UNFINISHED, FAILED]
    assert "1,000,000 acknowledged transitions, 400 kills in 60 minutes: 2 at fault" in chaos_line([failed()]).text


def test_a_promise_of_some_faults():
    assert ROW.tally("P1", []).state == NOT_RUN
    assert ROW.tally("P1", [record()]).state == PASSED
    assert ROW.tally("P1", [failed()]).failures == 2
    assert ROW.tally("P1", [record(controls={"drop": False, "honest": True})]).state == FAILED
    assert ROW.tally("P1", [record(figures={"swaps": 9})]).state == FAILED
    assert "kills of actor 100; swaps 10" in ROW.tally("P1", [record()]).figures


def test_the_section_shows_every_kind_of_fault():
    text = "\n".join(chaos_section([record()]))
    assert all(f"| {kind} |" in text for kind in FAULTS)
    assert "Kills: buffer 100, learner 100" in text
    assert "Of 1 lies the checker found 1" in text
    assert chaos_section([]) == [NOT_RUN]
    older = record(table={kind: said for kind, said in record()["table"].items() if kind != "intruded"})
    assert "| intruded |" not in "\n".join(chaos_section([older]))
