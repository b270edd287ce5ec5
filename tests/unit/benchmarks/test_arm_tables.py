"""What the results page says of a robot's periods and of a policy server."""

from __future__ import annotations

from campaign.arm_tables import JITTER, SERVER, arm_lines, arm_sections
from campaign.gate import FAILED, NOT_RUN, PASSED

ORIGIN = {"commit": "c", "dirty": False, "date": "2026-01-02T00:00:00Z", "machine": {}}


def jitter(late, passed):
    state = {"late_ms_p50": 0.1, "off_ms_p50": 0.2, "off_ms_p99": 3.0, "overruns": 4, "updates_s": 7.5}
    states = {"loaded": {**state, "late_ms_p99": 2.0}, "stopped": {**state, "late_ms_p99": late}}
    return {**states, "passed": passed, **ORIGIN}


def served(policy, factor):
    def side(per_s):
        return {"per_s": factor * per_s, "p50": 1.5, "p99": 2.5}

    robots = {str(n): {"echo": side(900.0 * n), "bare": side(200.0), "server": side(100.0 * n)} for n in (1, 16)}
    return {"policy": policy, "device": "cpu", "robots": robots, "actor": side(90.0), **ORIGIN}


def test_periods_are_held_against_their_bar_and_a_server_against_one_pass_a_request():
    assert [line.state for line in arm_lines({})] == [NOT_RUN, NOT_RUN]
    assert arm_sections({}).count(NOT_RUN) == 2
    found = {JITTER: [jitter(9.0, False), jitter(2.5, True)], SERVER: [served("pixels", 1.0), served("state", 2.0)]}
    periods, server = arm_lines(found)
    assert (periods.state, server.state) == (PASSED, "measured")
    assert arm_lines({JITTER: found[JITTER][:1]})[0].state == FAILED
    assert "p99 2.00 ms under full load, 2.50 ms with the buffer stopped" in periods.text
    assert "state on cpu: 3,200 decisions/s for 16 robots, p99 2.5 ms (one pass a request: 400, 2.5 ms)" in server.text
    page = "\n".join(arm_sections(found))
    assert "| stopped | 0.10, 2.50 | 0.20, 3.00 | 4 | 7.5 | `c` | 2026-01-02 |" in page
    assert "| pixels | cpu | 16 | 14,400, 1.50, 2.50 | 200, 1.50, 2.50 | 1,600, 1.50, 2.50 | `c` | 2026-01-02 |" in page
    assert "| state | cpu | 1, as an actor | - | - | 180, 1.50, 2.50 | `c` | 2026-01-02 |" in page
