"""The pool that a buffer begins with: its own, that of its newest snapshot, or one made of the past."""

from __future__ import annotations

import logging
import os
import time

import numpy as np

from headrace.buffer import generations, snapshot
from headrace.buffer.epochs import Epochs
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.settings import BufferSettings
from headrace.common.errors import PoolTorn
from headrace.common.seeds import derive_seed
from headrace.common.specs import TransitionSpec

LOG = logging.getLogger(__name__)


def existing(settings: BufferSettings) -> SACReplayPool | None:
    """The pool that a buffer begins with: its own, or what its newest snapshot or the past hold; none when there is nothing."""
    pool = _opened(settings)
    if pool is None or pool.head == 0:
        pool = _restored(settings, pool)
    if pool is None and settings.demos is not None:
        pool = make_pool(settings, None)  # a learner can begin on demonstrations alone
    if settings.past is None or (pool is not None and pool.head > 0):
        return pool
    with settings.past() as past:  # a kill in the middle leaves an empty pool, which begins again here
        pool = make_pool(settings, past.spec) if pool is None else pool
        pool.adopt(past)
    return pool


def _opened(settings: BufferSettings) -> SACReplayPool | None:
    """The pool that is there; none too where it cannot be trusted and a snapshot can take its place."""
    if not generations.is_pool(settings.pool_dir):
        return None
    try:
        return make_pool(settings, None)
    except PoolTorn as error:
        if settings.snapshot_dir is None or snapshot.read(settings.snapshot_dir) is None:
            raise
        LOG.warning("%s", error)
        generations.remove(settings.pool_dir)
        return None


def _restored(settings: BufferSettings, empty: SACReplayPool | None) -> SACReplayPool | None:
    """The pool of the newest snapshot, where the pool itself is gone (as from a memory disk after a reboot) or empty.

    A kill in the middle leaves an empty pool, which begins again here.
    """
    found = snapshot.read(settings.snapshot_dir) if settings.snapshot_dir is not None else None
    if found is None:
        return empty
    body = found[0]
    LOG.warning("no rows in %s: those of snapshot %d take their place, %s", settings.pool_dir, body["number"], body["rows"])
    # Streams and weight versions are numbered by epochs, whose counts may be gone with the pool: begin far above them.
    Epochs(settings.pool_dir).raise_all(int(time.time()))
    pool = make_pool(settings, TransitionSpec.from_dict(body["spec"])) if empty is None else empty
    pool.set_state({**body, "arrays": found[1]})
    return pool


def make_pool(settings: BufferSettings, spec: TransitionSpec | None) -> SACReplayPool:
    """The pool of these settings, made or opened."""
    rng = np.random.default_rng(derive_seed(settings.seed, "sampler", os.getpid()))
    path, config = settings.pool_dir.absolute(), settings.pool
    demos, sampling = None if settings.demos is None else settings.demos(), settings.sampling
    return SACReplayPool(
        config.capacity,
        path=path,
        spec=spec,
        config=config,
        sampling=sampling,
        rng=rng,
        demos=demos,
        return_gamma=settings.return_gamma,
    )
