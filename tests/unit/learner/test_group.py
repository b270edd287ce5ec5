"""A group of ranks, as real processes over gloo: the same sums as one process, the same bits on every rank, and no hangs."""

from __future__ import annotations

import signal
import time

import pytest
import torch
from helpers.group import WAIT_S, alone, finish, require_close, start
from helpers.rank import TIED_FLOW

from headrace.common.errors import ConfigError, GroupLost
from headrace.learner.group import Group, Order
from headrace.learner.place import Place

CASES = {
    "plain": {"rows": 25},
    "redq": {"model_options": {"critics": 5}, "options": {"target_critics": 2}},
    "parts": {"options": {"micro_batch_size": 3}},
    "td3-bc": {"options": {"bc_weight": 1.0, "td3_bc_alpha": 2.5, "ema_decay": 0.9, "micro_batch_size": 5}},
    "scaled": {"options": {"normalise_rewards": True}},
    "flow": TIED_FLOW,
}
HUNGRY = {"fed": {}, "late": {"hungry": [[2, 1]]}}
ILL = {"ill": {"poisoned": [[1, 1], [2, 0]]}}
FOREVER = {"plain": {"updates": 100_000}}


@pytest.fixture(scope="module")
def two():
    return finish(start(2, **CASES, **HUNGRY, **ILL))


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_make_the_sums_of_one_process_and_never_differ(size, two):
    one, ranks = alone(**CASES), two if size == 2 else finish(start(size, **CASES))
    for said in ranks:
        for case in CASES:
            assert [line.get("digest") for line in said[case]] == [line.get("digest") for line in ranks[0][case]]
            require_close(said[case], one[case])


def test_a_rank_without_rows_counts_nothing_and_holds_nobody(two):
    fed, late = ([line.get("digest") for line in two[0][case]] for case in HUNGRY)
    assert [a == b for a, b in zip(fed, late, strict=True)][:4] == [True, True, False, False]
    assert late == [line.get("digest") for line in two[1]["late"]]


def test_an_update_with_numbers_that_are_not_finite_on_one_rank_is_skipped_by_all(two):
    lines, others = (said["ill"][:-1] for said in two)
    assert [line["digest"] for line in lines] == [line["digest"] for line in others]
    assert [line["skipped"] for line in lines] == [0, 1, 2, 2]
    before, *after = [line["sac/alpha"] for line in lines]  # each as its update began
    assert after == [after[0]] * 3 != [before] * 3


def test_a_killed_rank_ends_the_others_and_says_so():
    ranks = start(3, **FOREVER)
    for process in ranks:
        assert process.stdout.readline()
    ranks[1].kill()
    for rank in (0, 2):
        _, err = ranks[rank].communicate(timeout=WAIT_S)
        assert ranks[rank].returncode == 1
        assert f"GroupLost: rank {rank} of 3 could not" in err
    ranks[1].communicate(timeout=WAIT_S)


def test_a_silent_rank_ends_the_others_when_their_patience_is_over():
    ranks = start(2, timeout_s=3.0, **FOREVER)
    for process in ranks:
        assert process.stdout.readline()
    ranks[1].send_signal(signal.SIGSTOP)
    try:
        _, err = ranks[0].communicate(timeout=WAIT_S)
    finally:
        ranks[1].kill()
        ranks[1].communicate(timeout=WAIT_S)
    assert ranks[0].returncode == 1
    assert "a rank is gone, or silent for 3 s (learner.rank_timeout_s)" in err


def test_a_group_of_one_needs_nobody():
    with Group.join(1.0) as group:
        assert (group.rank, group.size, group.leads) == (0, 1, True)
        tensor = torch.tensor([3.0])
        group.mean([tensor], 0)
        group.copy_first([tensor])
        assert tensor.tolist() == [3.0]
        assert group.order(Order.STOP) is Order.STOP


def test_others_that_do_not_come_are_named_by_the_wait(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(GroupLost, match=r"rank 0 of 2 could not meet: a rank is gone, or silent for 1 s"), Group.join(1.0):
        pass


def test_a_file_is_a_place_to_meet_too(tmp_path):
    said = finish(start(2, tmp_path / "here", plain={"updates": 2}))
    assert [line.get("digest") for line in said[0]["plain"]] == [line.get("digest") for line in said[1]["plain"]]
    require_close(said[0]["plain"], alone(plain={"updates": 2})["plain"])


def test_a_signal_ends_a_rank_that_waits_for_the_others_where_they_meet(tmp_path):
    rank, _ = ranks = start(2, tmp_path / "here", timeout_s=WAIT_S, **FOREVER)
    ranks[1].kill()
    ranks[1].communicate(timeout=WAIT_S)
    end = time.monotonic() + WAIT_S
    while not (tmp_path / "here").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    rank.terminate()
    rank.communicate(timeout=10)
    assert rank.returncode == -signal.SIGTERM


def test_those_who_do_not_come_to_the_file_are_waited_for_in_vain(tmp_path, monkeypatch):
    for name, value in Place.of_one_host(1, 2, str(tmp_path / "here")).environment().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(GroupLost, match=r"rank 1 of 2 could not meet: a rank is gone, or silent for 1 s"), Group.join(1.0):
        pass


def test_variables_that_are_no_numbers_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ConfigError, match=r"WORLD_SIZE: 'two' in the environment is no number"), Group.join(1.0):
        pass
