"""Who may write the checkpoints of a run directory: the dead are followed, the living of another pool are not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from helpers.learner import make_sac, make_spec

from headrace.common.errors import CheckpointsClaimed
from headrace.common.weights import Version
from headrace.learner import checkpoint
from headrace.learner.claim import NAME, Claim
from headrace.learner.saver import Saver

HOLD = "import sys; from pathlib import Path; from headrace.learner.claim import Claim; c = Claim(Path(sys.argv[1]), 'a', 3)"


@pytest.fixture
def claim(tmp_path):
    made = []

    def take(pool="a", epoch=1):
        made.append(Claim(tmp_path, pool, epoch))
        return made[-1]

    yield take
    for one in made:
        one.release()


@pytest.mark.parametrize(("pool", "epoch"), [("b", 1), ("b", 9), ("a", 2)])
def test_a_living_one_is_named_and_stays(claim, tmp_path, pool, epoch):
    first = claim("a", 3)
    with pytest.raises(CheckpointsClaimed, match=rf"{tmp_path}/checkpoints: learner pid {os.getpid()} on .* writes here"):
        claim(pool, epoch)
    first.require()
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_later_one_of_the_same_pool_takes_over_and_the_other_finds_out(claim):
    first, second = claim("a", 3), claim("a", 4)
    second.require()
    with pytest.raises(CheckpointsClaimed, match=f"learner pid {os.getpid()}"):
        first.require()
    first.release()
    with pytest.raises(CheckpointsClaimed):
        claim("b", 1)  # the second one lives


def test_one_that_left_or_died_is_followed_by_anybody(claim, tmp_path):
    claim("a", 3).release()
    claim("b", 1).release()
    process = subprocess.Popen(
        [sys.executable, "-c", f"{HOLD}; print('has it', flush=True); sys.stdin.read()", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"has it\n"
        with pytest.raises(CheckpointsClaimed, match=f"learner pid {process.pid} on "):
            claim("b", 1)
    finally:
        process.kill()
        process.communicate()
    claim("b", 1).require()


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"pid": 1}'])
def test_a_file_without_sense_holds_nobody_up_for_longer_than_its_owner_lives(claim, tmp_path, text):
    (tmp_path / NAME).write_text(text)
    claim("b", 1).require()


def test_a_learner_that_was_replaced_writes_no_further_checkpoint_and_says_so(claim, tmp_path):
    sac, first = make_sac(make_spec()), claim("a", 3)
    saver = Saver(tmp_path / "checkpoints", 3, make_spec(), first)

    def save(step):
        saver.save(step, sac.get_state(), sac.weights(Version("learner", 3, step)))
        saver.wait(20.0)

    save(1)
    claim("a", 4)
    with pytest.raises(CheckpointsClaimed, match="writes here"):
        save(2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000000000001"]
    assert checkpoint.newest(tmp_path / "checkpoints").name == "step_000000000001"
