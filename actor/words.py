"""Words that people say to a robot and its run, by a key, a line in the terminal, a program, or from another host.

word      who obeys         what happens
arm       the robot         commands may leave, if the state that is read again allows it
ready     the robot         the scene is ready, and the episode begins
halt      the robot         it stops and is disarmed; the episode ends with its last complete step
success   robot and actor   the running episode ends here, as terminated; or the one that ended last is labelled
failure   robot and actor   the same
discard   robot and actor   the running episode is broken off, or the one that ended last is taken; it is never sampled
pause     robot and run     the running episode is broken off, the robot holds, no update is granted until ``resume``
resume    the run           it goes on
quit      the actor         it hands over what it has, and leaves
"""

from __future__ import annotations

from headrace.common.label import VERDICTS, Kind

OUTCOME_OF = {word: outcome for word, (kind, outcome) in VERDICTS.items() if kind is Kind.OUTCOME}
ROBOT_ONLY = ("arm", "ready", "halt")
WORDS = (*ROBOT_ONLY, *VERDICTS, "pause", "resume", "quit")
