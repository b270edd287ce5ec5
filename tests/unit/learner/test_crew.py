"""A crew's mates are real processes: what they write is what the learner would write, and losing one loses nothing."""

import gc
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from helpers.learner import Alone, make_batch, make_sac, make_spec

from headrace.learner import crew as crews
from headrace.learner import mlp
from headrace.learner.crew import Crew, nbytes, tensors_in

READY_S = 60.0
STEPS = 6


@pytest.fixture
def trained(monkeypatch):
    """Make a learner with so many processes, or one that does as many shares alone; all of them end with the test."""
    made, before = [], torch.get_num_threads()

    def make(size, alone=False, wait=True, **options):
        monkeypatch.setattr(mlp, "Crew", Alone if alone else Crew)
        sac = make_sac(make_spec(), threads=size, **options)
        made.append(sac.model)
        sac.update(make_batch(make_spec(), seed=99))
        if wait:
            assert sac.model._crew.wait_ready(READY_S)
        return sac

    yield make
    for model in made:
        model.close()
    torch.set_num_threads(before)


def train(sac, first=0, meanwhile=None):
    for i in range(first, first + STEPS):
        if meanwhile is not None and i == first + 2:
            meanwhile()
        sac.update(make_batch(make_spec(), seed=i))
    return {name: tensor.clone() for name, tensor in sac.get_state()["tensors"].items()}


def same(a, b):
    assert a.keys() == b.keys()
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("reduction", ["min", "mean"])
def test_mates_write_what_the_learner_would_write_to_the_bit(trained, reduction):
    together, by_itself = (trained(3, alone=alone, actor_reduction=reduction) for alone in (False, True))
    counts = []
    for sac in (together, by_itself):
        do, mine = sac.model._steps.do, []
        sac.model._steps.do = lambda step, share, do=do, mine=mine: (mine.append(share), do(step, share))
        counts.append(mine)
    assert same(train(together), train(by_itself))
    assert set(counts[0]) == {0}
    assert set(counts[1]) == {0, 1, 2}


def test_a_crew_follows_the_batch_size_and_needs_no_row_for_each_process(trained):
    together, by_itself = trained(3), trained(3, alone=True)
    for size in (5, 2, 1, 32):
        batch = make_batch(make_spec(), size=size, seed=size)
        for sac in (together, by_itself):
            sac.update(batch)
            sac.model._crew.wait_ready(READY_S)
            sac.update(batch)
    assert same(train(together), train(by_itself))


def test_training_does_not_wait_for_the_mates(trained):
    assert same(train(trained(2, wait=False)), train(trained(2, alone=True)))


@pytest.mark.parametrize(("number", "why"), [(signal.SIGKILL, "is lost"), (signal.SIGSTOP, "timed out")])
def test_a_mate_that_dies_or_hangs_is_done_without(trained, caplog, monkeypatch, number, why):
    monkeypatch.setattr(crews, "STEP_S", 2.0)
    sac, by_itself = trained(2), trained(2, alone=True)
    mate = sac.model._crew._mates[0]
    found = train(sac, meanwhile=lambda: os.kill(mate.pid, number))
    assert same(found, train(by_itself))
    assert not os.path.exists(f"/proc/{mate.pid}")
    assert "process 1 of the learner's crew is lost" in caplog.text
    assert why in caplog.text


def test_the_answer_to_an_interrupted_step_is_not_taken_for_that_of_the_next(trained):
    crew = trained(2).model._crew

    def interrupted(step, share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crew.run(0, interrupted, 2)
    done = []
    crew.run(1, lambda step, share: done.append((step, share)), 2)
    assert done == [(1, 0), (1, 1)]


def test_mates_end_with_the_crew_and_with_the_learner(trained):
    mate = trained(2).model._crew._mates[0]
    os.kill(mate.pid, signal.SIGINT)  # Ctrl-C reaches the whole group; the learner decides
    os.kill(mate.pid, signal.SIGTERM)
    time.sleep(0.1)
    assert os.path.exists(f"/proc/{mate.pid}")
    code = "import os,sys,time;from headrace.learner.crew import Crew;c=Crew(2);print(c._mates[0].pid,flush=True)"
    learner = subprocess.Popen([sys.executable, "-c", f"{code};time.sleep(60)"], stdout=subprocess.PIPE, text=True)
    with learner:
        pid = int(learner.stdout.readline())
        learner.kill()
    end = time.monotonic() + READY_S
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def test_a_crew_that_nobody_holds_any_more_ends_too():
    pid = Crew(2)._mates[0].pid
    gc.collect()
    assert not os.path.exists(f"/proc/{pid}")


def test_one_process_starts_none():
    crew = Crew(1)
    done = []
    crew.run(2, lambda step, share: done.append((step, share)), 1)
    assert done == [(2, 0)]
    assert crew.wait_ready(0.0)


def test_tensors_lie_behind_each_other_and_hold_zeros():
    shapes = [(3, 5), (), (7,), (0, 2)]
    memory = Crew(1).share({}, nbytes(shapes))
    tensors = tensors_in(memory, shapes)
    assert [tuple(t.shape) for t in tensors] == shapes
    assert all(not t.any() for t in tensors)
    for i, tensor in enumerate(tensors):
        tensor.fill_(i + 1)
    again = tensors_in(memory, shapes)
    assert [t.flatten()[:1].tolist() for t in again] == [[1.0], [2.0], [3.0], []]
    assert [t.sum().item() for t in again] == [15.0, 2.0, 21.0, 0.0]
