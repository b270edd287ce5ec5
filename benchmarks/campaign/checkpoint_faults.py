"""The planted faults in checkpoints, the best policy and exports."""

from __future__ import annotations

from campaign.planting import Mutant

LEARNER, LAUNCH = "tests/unit/learner", "tests/unit/launch"

CHECKPOINTS = (
    Mutant(
        "checkpoint-digest-not-checked",
        "learner/checkpoint.py",
        "        if found != entry:\n",
        "        if not entry:\n",
        (f"{LEARNER}/test_checkpoint.py",),
    ),
    Mutant(
        "checkpoint-named-before-it-is-whole",
        "learner/checkpoint.py",
        '    hidden = directory / f".writing-{pid}-{name}"\n',
        "    hidden = directory / name\n",
        (f"{LEARNER}/test_checkpoint.py",),
    ),
    Mutant(
        "checkpoint-due-while-one-is-written",
        "learner/loop.py",
        "return (enough or ended or again) and not self._saver.busy",
        "return enough or ended or again",
        (f"{LEARNER}/test_loop.py",),
    ),
    Mutant(
        "failed-last-checkpoint-is-success",
        "learner/loop.py",
        "        if self._saver.not_saved:\n            raise",
        "        if False:\n            raise",
        (f"{LEARNER}/test_loop.py",),
    ),
    Mutant(
        "failure-of-the-writing-thread-forgotten",
        "learner/saver.py",
        "where training looks for it\n            self._failure = error\n",
        "where training looks for it\n            pass\n",
        (f"{LEARNER}/test_saver.py",),
    ),
    Mutant(
        "failure-told-for-ever",
        "learner/saver.py",
        'keep=self._keep)\n            self.not_saved = ""\n',
        "keep=self._keep)\n",
        (f"{LEARNER}/test_saver.py",),
    ),
    Mutant(
        "second-learner-in-one-directory",
        "learner/claim.py",
        'if other is not None and (other.get("pool") != pool or other.get("epoch", 0) > epoch):',
        'if other is not None and other.get("epoch", 0) > epoch:',
        (f"{LEARNER}/test_claim.py",),
    ),
    Mutant(
        "earlier-learner-takes-over",
        "learner/claim.py",
        ' or other.get("epoch", 0) > epoch):',
        "):",
        (f"{LEARNER}/test_claim.py",),
    ),
    Mutant(
        "claim-of-the-dead-holds",
        "learner/claim.py",
        "        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)\n    except BlockingIOError:\n        return _read(path)\n",
        "        return _read(path)\n    except BlockingIOError:\n        pass\n",
        (f"{LEARNER}/test_claim.py",),
    ),
    Mutant(
        "replaced-learner-saves",
        "learner/checkpoint.py",
        "            permit()\n",
        "            pass\n",
        (f"{LEARNER}/test_claim.py",),
    ),
    Mutant(
        "replaced-learner-learns-on",
        "learner/saver.py",
        "        except CheckpointsClaimed as error:  # there will be no other one\n            self._failure = error\n",
        "",
        (f"{LEARNER}/test_claim.py",),
    ),
    Mutant(
        "file-in-place-of-checkpoints-is-none",
        "learner/checkpoint.py",
        "    if not directory.exists():\n",
        "    if not directory.is_dir():\n",
        (f"{LEARNER}/test_checkpoint.py",),
    ),
    Mutant(
        "equal-policy-is-better",
        "actor/best.py",
        "evaluation[SCORE] <= known[SCORE]",
        "evaluation[SCORE] < known[SCORE]",
        ("tests/unit/actor/test_best.py",),
    ),
    Mutant(
        "best-written-over-itself",
        "actor/best.py",
        "else PLACES[::-1]",
        "else PLACES",
        ("tests/unit/actor/test_best.py",),
    ),
    Mutant(
        "spec-digest-not-checked",
        "common/policy_files.py",
        "    if digest != spec.fingerprint():\n",
        "    if not digest:\n",
        ("tests/unit/common/test_policy_files.py",),
    ),
    Mutant(
        "export-digest-not-checked",
        "common/exported.py",
        "        if _digest(data) != told:\n",
        "        if not told:\n",
        ("tests/unit/common/test_exported.py",),
    ),
    Mutant(
        "export-description-not-checked",
        "common/exported.py",
        "    if digest != fingerprint(about):\n",
        "    if not digest:\n",
        ("tests/unit/common/test_exported.py",),
    ),
    Mutant(
        "trace-not-checked",
        "launch/policy_module.py",
        "        if not off <= TOLERANCE:\n",
        "        if False:\n",
        (f"{LAUNCH}/test_policy_module.py",),
    ),
)
