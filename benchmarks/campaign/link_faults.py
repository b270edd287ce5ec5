"""Planted faults of links that break: who was replaced, acks that get lost, dials without an answer, and of the fault proxy."""

from __future__ import annotations

from campaign.planting import Mutant

SESSION, SERVICE = ("tests/protocol/test_session.py",), ("tests/protocol/test_service.py",)
BROKEN = "tests/system/test_broken_links.py"
DIALLED = ("tests/unit/common/test_dialled.py",)
TAMPERING, ZMTP = ("tests/unit/launch/chaos/test_tampering.py",), ("tests/unit/launch/chaos/test_zmtp.py",)
PROXY = ("tests/system/test_proxy.py",)

LINKS = (
    Mutant(
        "who-was-replaced-comes-back",
        "common/wire/fleet.py",
        '        if returns and hello.role in WRITERS and self._epochs.holder(name) not in (b"", hello.incarnation):\n',
        "        if False:\n",
        SESSION,
    ),
    Mutant(
        "who-holds-an-id-not-written-down",
        "common/wire/fleet.py",
        "self._epochs.raise_epoch(name, hello.incarnation)",
        'self._epochs.raise_epoch(name, b"")',
        SESSION,
    ),
    Mutant(
        "replaced-by-whom-no-disk-took",
        "buffer/epochs.py",
        "            self._epochs = before\n            raise\n",
        "            raise\n",
        SESSION,
    ),
    Mutant(
        "every-hello-is-a-newcomers",
        "common/wire/session.py",
        "            self.hello = replace(self.hello, pool=message.pool)\n",
        "",
        SESSION,
    ),
    Mutant(
        "processes-of-other-pools-fenced",
        "buffer/reception.py",
        'hello.pool != "" and hello.pool == totals.info.get("uuid")',
        'hello.pool != ""',
        SERVICE,
    ),
    Mutant(
        "who-returns-not-asked-of-which-pool",
        "buffer/reception.py",
        'hello.pool != "" and hello.pool == totals.info.get("uuid")',
        "False",
        SERVICE,
    ),
    Mutant(
        "leases-end-within-a-frame",
        "common/wire/fleet.py",
        "            session.seen = max(session.seen, now - session.line.quiet_s())\n",
        "            pass\n",
        SESSION,
    ),
    Mutant(
        "leases-of-buffers-end-within-a-frame",
        "common/wire/conversation.py",
        "        if self.session.overdue(now):\n",
        "        if False:\n",
        (f"{BROKEN}::test_a_link_on_which_one_frame_takes_longer_than_a_lease_is_slow_and_not_broken",),
    ),
    Mutant(
        "updates-for-who-is-silent",
        "buffer/demands.py",
        "(client for client in clients if not client.silent)",
        "clients",
        ("tests/protocol/test_demands.py",),
    ),
    Mutant(
        "silent-within-a-frame",
        "buffer/reception.py",
        "self._fleet.silent_s(client.session, now, patience) > patience",
        "now - client.session.seen > patience",
        ("tests/protocol/test_demands.py",),
    ),
    Mutant("garbage-renews-a-lease", "common/wire/fleet.py", " and not session.garbled", "", SERVICE),
    Mutant(
        "garbage-not-told-apart-from-bytes-under-way", "buffer/service.py", "client.session.garbled = True", "pass", SERVICE
    ),
    Mutant(
        "bytes-of-another-connection",
        "common/wire/line.py",
        "(found.getsockname(), found.getpeername()) == self._names",
        "True",
        ("tests/unit/common/test_line.py",),
    ),
    Mutant(
        "sockets-closed-within-a-message", "common/wire/dialled.py", "self.socket.close(-1)", "self.socket.close(0)", DIALLED
    ),
    Mutant("hung-up-on-nobody", "common/wire/dialled.py", "        line.hang_up()\n        while", "        while", DIALLED),
    Mutant(
        "dead-connections-dialled-on",
        "common/wire/session.py",
        "            self._dialled, self.reconnect = now, True\n",
        "            self._dialled = now\n",
        SESSION,
    ),
    Mutant("being-greeted-again-is-a-fault", "buffer/admission.py", "NO_SPEC, HELLO_FIRST)", "NO_SPEC)", SERVICE),
    Mutant(
        "acks-are-said-once",
        "buffer/service.py",
        "        if pulse.settled >= pulse.executed:\n",
        "        if True:\n",
        SERVICE,
    ),
    Mutant(
        "acks-of-every-stream-remembered",
        "buffer/client.py",
        "        if len(self.acked) > STREAMS_PER_ACTOR:\n",
        "        if False:\n",
        SERVICE,
    ),
    Mutant(
        "half-open-dial-waited-for",
        "common/wire/sockets.py",
        "    socket.setsockopt(zmq.CONNECT_TIMEOUT, int(DIAL_S * 1000))\n    socket.setsockopt(zmq.HANDSHAKE_IVL,",
        "    socket.setsockopt(zmq.LINGER,",
        (f"{BROKEN}::test_a_half_open_predecessor_holds_nobody_up",),
    ),
    Mutant(
        "replay-of-what-was-refused",
        "launch/chaos/tampering.py",
        "            past.clear()\n",
        "            pass\n",
        TAMPERING,
    ),
    Mutant(
        "flip-of-the-framing",
        "launch/chaos/tampering.py",
        "self._rng.integers(start, stop)",
        "self._rng.integers(0, start)",
        TAMPERING,
    ),
    Mutant(
        "encrypted-messages-dropped",
        "launch/chaos/tampering.py",
        " or (unit.sealed and rule.act in WHOLE)",
        "",
        TAMPERING,
    ),
    Mutant(
        "cut-messages-whole", "launch/chaos/tampering.py", "self._rng.integers(1, len(unit.data))", "len(unit.data)", TAMPERING
    ),
    Mutant("long-frames-by-one-byte", "launch/chaos/zmtp.py", "at + (9 if data[at] & LONG else 2)", "at + 2", ZMTP),
    Mutant(
        "half-open-connections-pass",
        "launch/chaos/proxy.py",
        "        self.dead = True\n",
        "        self.dead = False\n",
        PROXY,
    ),
    Mutant(
        "held-links-let-pass",
        "launch/chaos/proxy.py",
        "        while self.faults.held:\n",
        "        while False:\n",
        PROXY,
    ),
    Mutant(
        "rates-not-kept",
        "launch/chaos/proxy.py",
        "                await self._link.pause(len(piece) / rate)\n",
        "                pass\n",
        PROXY,
    ),
)
