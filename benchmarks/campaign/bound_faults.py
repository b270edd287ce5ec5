"""Planted faults of what bounds memory, disk, files and sockets."""

from __future__ import annotations

from campaign.planting import Mutant

SHELF, SERVER = ("tests/unit/buffer/test_shelf.py",), ("tests/unit/buffer/test_server.py",)
READER, WEIGHTS = "common/wire/weight_reader.py", ("tests/unit/common/test_weight_reader.py",)
UPLINK = ("tests/protocol/test_uplink.py",)
CREDITS, DISK = ("tests/protocol/test_credits.py",), ("tests/protocol/test_full_disk.py",)
LIMITS, BACKUPS = ("tests/unit/buffer/test_limits.py",), ("tests/unit/buffer/test_backups.py",)
LINES, SINKS = ("tests/unit/learner/test_lines.py",), ("tests/unit/learner/test_sinks.py",)
LOOP, LOGS = ("tests/unit/learner/test_loop.py",), ("tests/unit/launch/test_logs.py",)

BOUNDS = (
    Mutant(
        "heartbeats-earn-credit", "buffer/credits.py", "            client.taken -= nbytes\n", "            pass\n", CREDITS
    ),
    Mutant("credit-not-enforced", "buffer/credits.py", "client.outstanding > self._most", "client.outstanding < 0", CREDITS),
    Mutant(
        "waiting-parts-give-credit",
        "buffer/client.py",
        "(0 if self.turn and not self.landing else self.joiner.held)",
        "0",
        CREDITS,
    ),
    Mutant("every-long-message-has-a-turn", "buffer/credits.py", "if size > left:", "if size < 0:", CREDITS),
    Mutant(
        "a-turn-outlives-its-session",
        "buffer/reception.py",
        "            self._credits.end(client)\n",
        "            pass\n",
        CREDITS,
    ),
    Mutant("a-turn-never-ends", "buffer/credits.py", "client.landing = False", "client.landing = True", CREDITS),
    Mutant(
        "begun-anew-keeps-its-place",
        "buffer/credits.py",
        "        self.end(client)\n        if self._credit",
        "        if self._credit",
        CREDITS,
    ),
    Mutant(
        "a-full-disk-drops-the-hello",
        "common/wire/fleet.py",
        "        except OSError as error:  # an epoch",
        "        except KeyError as error:  # an epoch",
        DISK,
    ),
    Mutant(
        "an-epoch-that-is-not-on-disk-is-given-out",
        "buffer/epochs.py",
        "        temporary.unlink(missing_ok=True)  # the room that it took is wanted\n        raise\n",
        "        pass\n",
        DISK,
    ),
    Mutant(
        "a-full-disk-ends-the-shelf",
        "buffer/shelf.py",
        "        except OSError as error:\n",
        "        except KeyError as error:\n",
        DISK,
    ),
    Mutant("the-shelf-is-not-written-again", "buffer/shelf.py", "        if self.not_written:\n", "        if False:\n", DISK),
    Mutant(
        "the-shelf-has-room-for-one-set",
        "buffer/shelf.py",
        "for path in self._paths:",
        "for path in [self._paths[self._turn]]:",
        DISK,
    ),
    Mutant("rows-wait-for-weights", "buffer/server.py", "if isinstance(each, (Shelve, Rewrite)):", "if False:", SERVER),
    Mutant("a-drain-takes-all-there-is", "buffer/server.py", "if room <= 0:", "if False:", SERVER),
    Mutant(
        "infinite-weights-act", "common/wire/weight_fetch.py", "        if reader.not_finite:\n", "        if False:\n", UPLINK
    ),
    Mutant("only-whole-pieces-are-looked-through", READER, "        self._look()\n", "", WEIGHTS),
    Mutant(
        "halves-are-not-looked-through",
        READER,
        'FLOATS = ("<f4", "<f8", "<f2", HALF)',
        'FLOATS = ("<f4", "<f8", "<f2")',
        WEIGHTS,
    ),
    Mutant("memory-is-lent-twice", "common/lent.py", "memory = self._free.pop()", "memory = self._free[-1]", WEIGHTS),
    Mutant("a-digest-is-taken-on-trust", READER, "self._digest.digest()", "bytes(self._blob[-DIGEST_BYTES:])", WEIGHTS),
    Mutant("ranges-in-any-order", "common/wire/weight_fetch.py", "if part.offset != self.held:", "if False:", UPLINK),
    Mutant("a-set-is-written-over-the-newest", "buffer/shelf.py", "self._turn = 1 - turn", "self._turn = turn", SHELF),
    Mutant("sets-are-written-over-each-other", "buffer/shelf.py", '1 - self._turn, ""', 'self._turn, ""', SHELF),
    Mutant("no-room-for-a-longer-version", "buffer/shelf.py", "size + _SPARE", "size", SHELF),
    Mutant("observers-fill-the-epochs", "common/wire/fleet.py", "if hello.role not in WRITERS:", "if not hello.role:", DISK),
    Mutant("a-failed-snapshot-waits-its-period", "buffer/backups.py", "min(self._every_s, AGAIN_S)", "self._every_s", BACKUPS),
    Mutant("a-torn-line-spoils-the-next", "learner/lines.py", 'b"\\n" * self._torn + ', "", LINES),
    Mutant("a-cut-line-passes-for-whole", "learner/lines.py", "if done < len(data):", "if done < 0:", LINES),
    Mutant(
        "a-full-disk-ends-the-metrics",
        "learner/sinks.py",
        "        except OSError as error:\n            if not self.not_logged",
        "        except KeyError as error:\n            if not self.not_logged",
        SINKS,
    ),
    Mutant("a-failed-checkpoint-waits-its-updates", "learner/loop.py", "(enough or ended or again)", "(enough or ended)", LOOP),
    Mutant("a-failed-checkpoint-is-told-late", "learner/loop.py", "and not force and not news", "and not force", LOOP),
    Mutant("logs-grow-for-ever", "launch/logs.py", "if path.stat().st_size >= LOG_BYTES:", "if False:", LOGS),
    Mutant("a-cap-below-the-bound", "buffer/limits.py", "if 0 < cap_bytes < bound.total:", "if cap_bytes < 0:", LIMITS),
    Mutant("few-files-are-not-told", "buffer/limits.py", "if self.reach >= self.actors:", "if self.reach >= 0:", LIMITS),
    Mutant(
        "a-failing-disk-is-a-traceback",
        "buffer/server.py",
        "    except OSError as error:\n        why",
        "    except KeyError as error:\n        why",
        ("tests/system/test_disk_errors.py::test_a_disk_that_fails_at_the_start_is_one_line",),
    ),
    Mutant(
        "curves-grow-for-ever",
        "launch/curves.py",
        "while len(self._parts) > MOST_POINTS:",
        "while False:",
        ("tests/unit/launch/test_curves.py",),
    ),
    Mutant(
        "slopes-surer-than-they-are",
        "benchmarks/campaign/slopes.py",
        "T_975 = 2.228",
        "T_975 = 0.7",
        ("tests/unit/benchmarks/test_slopes.py",),
    ),
    Mutant(
        "a-process-out-of-memory-limps-on",
        "buffer/service.py",
        "        except MemoryError:\n            raise",
        "        except KeyError:\n            raise",
        ("tests/protocol/test_credits.py",),
    ),
    Mutant(
        "the-cap-is-not-set",
        "common/limits.py",
        "    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))\n",
        "",
        ("tests/unit/common/test_limits.py",),
    ),
)
