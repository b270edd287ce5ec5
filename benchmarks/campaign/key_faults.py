"""Planted faults of keys: who is let in, what a key opens, what becomes of a revoked one, and how secrets lie on the disk."""

from __future__ import annotations

from campaign.planting import Mutant

RING, FILES = "tests/unit/common/test_keyring.py", "tests/unit/common/test_key_files.py"
GATE, SESSIONS = "tests/unit/common/test_gate.py", "tests/protocol/test_keys.py"
START, WATCH = "tests/unit/buffer/test_guarded_start.py", "tests/unit/common/test_key_watch.py"
RUN = "tests/unit/launch/test_credentials.py"

KEYS = (
    Mutant(
        "unknown-key-let-in", "common/wire/keyring.py", "self._admits and self.who(public) is not None", "self._admits", (RING,)
    ),
    Mutant(
        "let-in-while-keys-cannot-be-told", "common/wire/keyring.py", "if public and self._admits and", "if public and", (RING,)
    ),
    Mutant("any-domain-is-ours", "common/wire/keyring.py", " and domain == self._domain", "", (RING,)),
    Mutant("keyless-mechanism-is-a-key", "common/wire/keyring.py", "mechanism == MECHANISM and ", "", (RING,)),
    Mutant(
        "buffers-key-opens-sessions",
        "common/wire/keyring.py",
        "key is not None and SESSIONS[key.role] else",
        "key is not None else",
        (RING,),
    ),
    Mutant(
        "key-of-any-role-opens-any-session", "common/wire/keyring.py", "role in SESSIONS[key.role] and ", "", (RING, SESSIONS)
    ),
    Mutant(
        "actor-writes-as-another",
        "common/wire/keyring.py",
        " and (key.role not in BOUND or key.name == identity)",
        "",
        (RING, SESSIONS),
    ),
    Mutant("key-of-two-owners-is-the-last-ones", "common/wire/keyring.py", " if len(owners[key.public]) == 1", "", (RING,)),
    Mutant("hello-without-its-key", "buffer/reception.py", "        if barred is not None:", "        if False:", (SESSIONS,)),
    Mutant("address-is-the-key", "buffer/reception.py", " or client.session.user != user", "", (SESSIONS,)),
    Mutant(
        "revoked-key-goes-on",
        "buffer/service.py",
        "self.reception.keyring.who(user) is None:\n            raise",
        "False:\n            raise",
        (SESSIONS,),
    ),
    Mutant(
        "revoked-session-stays",
        "buffer/reception.py",
        "            out.append((session.peer, [encode(answers.REVOKED)]))\n",
        "",
        (SESSIONS,),
    ),
    Mutant(
        "options-behind-bind-not-noticed",
        "common/wire/gate.py",
        "        self._prove_closed(",
        "        (lambda *_: None)(",
        (START,),
    ),
    Mutant("unknown-key-not-tried", "common/wire/gate.py", ', ("with an unknown key", unknown)):', ",):", (GATE,)),
    Mutant(
        "question-that-raises-ends-the-gate",
        "common/wire/gate.py",
        "        except Exception:  # a",
        "        except OSError:  # a",
        (GATE,),
    ),
    Mutant(
        "socket-without-keys",
        "common/wire/sockets.py",
        "        socket.setsockopt(zmq.CURVE_SERVER, 1)\n",
        "",
        (GATE,),
    ),
    Mutant(
        "door-open-to-the-network",
        "common/wire/sockets.py",
        "    if is_loopback(endpoint) or network.insecure",
        "    if True or network.insecure",
        (START,),
    ),
    Mutant(
        "secret-readable-by-the-group",
        "common/wire/key_files.py",
        "OTHERS, WRITABLE = 0o077, 0o022",
        "OTHERS, WRITABLE = 0o007, 0o022",
        (FILES,),
    ),
    Mutant(
        "public-half-writable-by-others",
        "common/wire/key_files.py",
        "OTHERS, WRITABLE = 0o077, 0o022",
        "OTHERS, WRITABLE = 0o077, 0o000",
        (FILES,),
    ),
    Mutant(
        "secret-wide-for-an-instant",
        "common/wire/key_files.py",
        "os.O_EXCL | os.O_NOFOLLOW, mode)",
        "os.O_EXCL | os.O_NOFOLLOW, 0o666)",
        (FILES,),
    ),
    Mutant(
        "secret-written-over-what-lies-there", "common/wire/key_files.py", "os.O_CREAT | os.O_EXCL |", "os.O_CREAT |", (FILES,)
    ),
    Mutant("next-key-replaces-at-once", "common/wire/key_files.py", "numbered[-1][0] + 1 if numbered else 1", "1", (FILES,)),
    Mutant("change-of-keys-not-seen", "common/wire/key_watch.py", "if stamp == self._stamp:", "if stamp:", (WATCH,)),
    Mutant(
        "directory-that-goes-revokes-all",
        "common/wire/key_watch.py",
        "            self._keyring.close(str(error))\n            return False",
        "            self._keyring.replace([], [])\n            return True",
        (WATCH,),
    ),
    Mutant(
        "train-makes-no-keys",
        "launch/credentials.py",
        "        network = replace(network, keys=str(run.keys))\n    files",
        "        return network\n    files",
        (RUN,),
    ),
)
