"""Planted faults of the robot's client: handover, scribe, session, outbox, labels, spool and its file."""

from __future__ import annotations

from campaign.planting import Mutant

UNIT = "tests/unit/actor"
HANDOVER, SCRIBE, SESSION = f"{UNIT}/test_handover.py", f"{UNIT}/test_scribe.py", f"{UNIT}/test_session.py"
DOCTOR = "tests/unit/launch/test_robot_doctor.py"
LABELS, PLAN = f"{UNIT}/test_label_box.py", f"{UNIT}/test_plan.py"
RING, SPOOL = f"{UNIT}/test_ring_file.py", f"{UNIT}/test_spool.py"
HELLO_TO_GOODBYE = "tests/system/test_session.py::test_a_session_from_hello_to_goodbye_leaves_nothing_behind"

CLIENT = (
    # from the loop to the outbox
    Mutant(
        "full-handover-written-over",
        "actor/handover.py",
        "        if self.is_full:\n            return False\n",
        "",
        (HANDOVER,),
    ),
    Mutant(
        "picture-cast-to-bytes",
        "actor/handover.py",
        'not np.can_cast(given.dtype, place.dtype, "same_kind")',
        "False",
        (HANDOVER,),
    ),
    Mutant(
        "block-of-two-episodes",
        "actor/scribe.py",
        "            if not self._running:\n                offered |= self._hand_over(1)\n",
        "",
        (SCRIBE,),
    ),
    Mutant(
        "verdict-about-a-later-episode",
        "actor/scribe.py",
        "while self._verdicts and self._verdicts[0][0] <= self._handover.taken_count:",
        "while self._verdicts and self._handover.taken_count == self._handover.put_count:",
        (SCRIBE,),
    ),
    Mutant(
        "verdict-about-an-episode-without-steps",
        "actor/scribe.py",
        "fresh = self._running and not self._length",
        "fresh = False",
        (SCRIBE,),
    ),
    Mutant(
        "verdict-ahead-of-its-rows",
        "actor/scribe.py",
        "(self._running or self._held is not None",
        "(self._held is not None",
        (SCRIBE,),
    ),
    Mutant(
        "episode-goes-on-behind-a-missing-step",
        "actor/session.py",
        "if self._cut or not self._put(step, obs, action, planned):",
        "if not self._put(step, obs, action, planned):",
        (SESSION,),
    ),
    Mutant(
        "verdict-on-a-missed-episode-is-of-the-one-before",
        "actor/session.py",
        "        if not self._absent:\n            self._scribe.say(verdict)",
        "        self._scribe.say(verdict)",
        (SESSION,),
    ),
    Mutant("stacked-frames-of-the-last-episode", "actor/session.py", "np.array([self._episode])", "np.array([0])", (SESSION,)),
    Mutant("thread-that-outlives-its-session", "actor/session.py", ", zero_copy=False)", ")", (HELLO_TO_GOODBYE,)),
    # chunks
    Mutant(
        "plan-of-the-episode-before",
        "actor/plan.py",
        "self._chunk, self._done, self._row = None, 0, 0",
        "self._row = 0",
        (PLAN,),
    ),
    Mutant(
        "plan-goes-on-behind-a-human",
        "actor/plan.py",
        "if own or source == SOURCE_HUMAN or self._done == self._window:",
        "if own or self._done == self._window:",
        (PLAN,),
    ),
    Mutant(
        "rows-of-humans-are-one-step-long",
        "actor/plan.py",
        "if source == SOURCE_HUMAN and goes_on:",
        "if False:",
        (PLAN, SESSION),
    ),
    Mutant("chunk-longer-than-its-row", "actor/plan.py", "0 < self._row < self._window", "0 < self._row", (PLAN,)),
    # the outbox
    Mutant(
        "dropped-although-it-had-arrived",
        "actor/outbox.py",
        "            self.dropped -= item.steps\n",
        "",
        (SPOOL,),
    ),
    Mutant("doubt-outlives-its-session", "actor/outbox.py", "        self._doubtful.clear()\n", "", (SPOOL,)),
    Mutant(
        "rest-of-a-dropped-episode-kept",
        "actor/outbox.py",
        "        if not len(self):\n            self._given_up = episode\n",
        "",
        (SCRIBE,),
    ),
    Mutant(
        "episode-dropped-in-part",
        "actor/outbox.py",
        "while len(self) and (self._items or self._waiting)[0].episodes[0] == episode:",
        "for _ in range(1):",
        (SCRIBE, SPOOL),
    ),
    Mutant(
        "old-numbers-in-another-pool",
        "actor/outbox.py",
        'name.stream == 0 or (first and pool and name.pool not in ("", pool))',
        "name.stream == 0",
        (SPOOL,),
    ),
    Mutant(
        "numbers-given-out-twice",
        "actor/outbox.py",
        "            if first and acknowledged > self.on_wire(self._left):\n",
        "            if False:\n",
        (SPOOL,),
    ),
    Mutant("rate-not-held", "actor/byte_rate.py", "return self._balance >= 0", "return True", (SPOOL,)),
    Mutant(
        "answer-frees-what-is-kept-and-not-added-yet",
        "actor/spool.py",
        "self._file.free(gone.end if oldest is None else oldest.position)",
        "self._file.free(self._file._head if oldest is None else oldest.position)",
        (SPOOL,),
    ),
    # labels
    Mutant(
        "labels-end-with-their-process",
        "actor/label_box.py",
        "left = file.left if file is not None else []",
        "left = []",
        (LABELS, SPOOL),
    ),
    Mutant(
        "answered-labels-stay-in-their-file",
        "actor/label_file.py",
        "            self._ring.save()\n",
        "            pass\n",
        (LABELS,),
    ),
    Mutant(
        "labels-about-another-pools-rows",
        "actor/uplink.py",
        "            if last >= 1:\n",
        "            if True:\n",
        (SPOOL,),
    ),
    Mutant(
        "numbers-of-labels-given-out-again",
        "actor/spool.py",
        "            self._next_seq = max(self._next_seq, label.last + 1)\n",
        "",
        (SPOOL,),
    ),
    Mutant(
        "labels-from-a-damaged-file-not-counted",
        "actor/label_file.py",
        "        self.damaged += sum(b.position != a.end for a, b in itertools.pairwise(places))\n",
        "",
        (LABELS,),
    ),
    # the file
    Mutant("stream-not-on-disk-before-it-is-used", "actor/spool.py", "        self._file.save()\n", "", (SPOOL,)),
    Mutant("damaged-rows-not-counted", "actor/spool.py", "sum(b.first - a.last - 1 for a, b in gaps)", "0", (SPOOL,)),
    Mutant(
        "next-episode-takes-an-old-number",
        "actor/spool.py",
        "            self._next_episode = max(self._next_episode, int(rows.max()) + 1)\n            steps",
        "            steps",
        (SPOOL,),
    ),
    Mutant(
        "kept-before-it-is-on-disk",
        "actor/ring_file.py",
        "                position += len(part)\n            os.fdatasync(self._fd)\n",
        "                position += len(part)\n",
        (RING,),
    ),
    Mutant(
        "space-used-before-its-cursor-is-on-disk",
        "actor/ring_file.py",
        "if place.end > self._tail_on_disk + self.size:",
        "if False:",
        (RING,),
    ),
    Mutant("record-of-an-earlier-lap", "actor/ring_file.py", "or where != position ", "", (RING,)),
    Mutant(
        "body-of-a-record-not-checked",
        "actor/ring_file.py",
        "return (place, body) if zlib.crc32(body) == body_sum else None",
        "return place, body",
        (RING,),
    ),
    Mutant("damage-ends-the-file", "actor/ring_file.py", "        while position < stop:\n", "        while False:\n", (RING,)),
    Mutant("ring-does-not-wrap", "actor/ring_file.py", "view[: self.size - at]", "view", (RING,)),
    Mutant("older-cursor-believed", "actor/ring_file.py", "return *max(found), ", "return *min(found), ", (RING,)),
    # the doctor of a robot's computer
    Mutant(
        "actors-may-ask-for-the-status",
        "buffer/service.py",
        '        elif client.session.role != "observer":\n',
        "        elif False:\n",
        ("tests/protocol/test_service.py",),
    ),
    Mutant("a-camera-that-hangs-is-fit", "launch/robot_doctor.py", "if new[key] <= 1:", "if new[key] < 1:", (DOCTOR,)),
    Mutant("a-device-that-reads-zeros-is-fit", "launch/robot_doctor.py", " > MOVED)", " >= 0)", (DOCTOR,)),
    Mutant(
        "a-link-without-anything-to-spare",
        "launch/robot_doctor.py",
        "told.bytes_s < SPARE * needed",
        "told.bytes_s < needed",
        (DOCTOR,),
    ),
    Mutant("a-spool-without-room", "launch/robot_doctor.py", "free + taken < actor.spool_bytes", "free + taken < 0", (DOCTOR,)),
)
