"""Demonstrations through the command line: import them, look at the rows, and spoil their files."""

from __future__ import annotations

import h5py
import numpy as np
from helpers.demo_files import HIGH, LOW, TAKES

from headrace.buffer import SACReplayPool, manifest
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.launch import cli

BOUNDS = ("--low", *map(str, LOW), "--high", *map(str, HIGH))
LENGTHS = [take.length for take in TAKES]


def run(capsys, *words):
    """What a command prints that must end well."""
    code = cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def fails(capsys, *words):
    """The error of a command that must be refused for a reason that is understood."""
    assert cli.main([str(word) for word in words]) == 1
    err = capsys.readouterr().err
    assert "internal error" not in err
    return err


def rows_of(place):
    """All rows as a batch, and the pool's spec."""
    with SACReplayPool(int(manifest.read(place)["config"]["capacity"]), path=place) as pool:
        assert pool.check_valid() == (True, "")
        return pool.gather(np.arange(pool.tail, pool.head)), pool.spec


def prove(batch, pose="pose", window=1, lengths=LENGTHS, ends=None):
    """Every step of every take is a row whose window, observations, rewards and flags are those of the script."""
    rows, i = batch.rows, 0
    for episode, length in enumerate(lengths):
        end = TAKES[episode].end if ends is None else ends[episode]
        for t in range(length):
            row, m = rows[i], min(window, length - t)
            assert (row["episode"], row["t"], row["steps"], row["seq"]) == (episode, t, m, i + 1)
            obs, after = batch.obs[pose][i], batch.next_obs[pose][i]
            stack = obs.reshape(-1, 2)
            h = len(stack)
            np.testing.assert_array_equal(stack, [(episode, max(0, t - k)) for k in reversed(range(h))])
            np.testing.assert_array_equal(after.reshape(-1, 2), [(episode, max(0, t + m - k)) for k in reversed(range(h))])
            np.testing.assert_allclose(row["action"], (episode / 10, t / 10), rtol=1e-6)
            wanted = [100 * episode + t + k if k < m else 0 for k in range(window)]
            np.testing.assert_array_equal(row["rewards"], wanted)
            last = t + m == length
            assert (row["terminated"], row["truncated"]) == (last and end == "terminated", last and end == "truncated")
            assert row["source"].tolist() == [2] * m + [0] * (window - m)
            i += 1
    assert i == len(rows)


def prove_outcomes(rows):
    """Every row knows how its take ended."""
    for episode, take in enumerate(TAKES):
        assert set(rows["outcome"][rows["episode"] == episode]) == {1 if take.success else 2}


def empty_pool(place, obs=((2,), "<f4"), dim=2, window=1, kind="steps", low=LOW):
    """A pool of 100 rows with one observation ``obs``; its directory."""
    action = ActionSpec((dim,), low[:1] * dim if dim != 2 else low, HIGH[:1] * dim if dim != 2 else HIGH)
    spec = TransitionSpec((ObsSpec("obs", obs[0], obs[1], "critic"),), action, window, kind)
    SACReplayPool(100, path=place, spec=spec).close()
    return place


def refuses(capsys, source, change, said, *pools):
    """``source`` with ``change`` is refused, and ``said`` why: no pool is made of it, and none of ``pools`` takes a row."""
    with h5py.File(source, "a") as file:
        change(file)
    before = sorted(source.parent.iterdir())
    assert said in fails(capsys, "pool", "import", source, source.parent / "new", *BOUNDS)
    for place in pools:
        assert said in fails(capsys, "pool", "import", source, place)
    assert sorted(source.parent.iterdir()) == before
    for place in pools:
        with SACReplayPool(100, path=place) as pool:
            assert (pool.size, pool.actors()) == (0, [])


# Changes of an open file. --------------------------------------------------------------------------------------------


def drop(name):
    """Leave an object out."""

    def change(file):
        del file[name]

    return change


def put(name, data, **options):
    """Write other data."""

    def change(file):
        if name in file:
            del file[name]
        file.create_dataset(name, data=data, **options)

    return change


def declare(name, shape, **options):
    """Declare data without writing any."""

    def change(file):
        del file[name]
        file.create_dataset(name, shape=shape, **options)

    return change


def link(name, target):
    """Put a link in place of an object."""

    def change(file):
        del file[name]
        file[name] = target

    return change


def external_storage(file):
    """Rewards whose bytes are those of another file."""
    del file["rewards"]
    file.create_dataset("rewards", (22,), "f4", external=[("/etc/hostname", 0, 88)])


def virtual(file):
    """Rewards that lie in another HDF5 file."""
    del file["rewards"]
    layout = h5py.VirtualLayout((22,), "f4")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "rewards", (22,))
    file.create_virtual_dataset("rewards", layout)


def spoil(name, row, value):
    """Change one row."""

    def change(file):
        file[name][row] = value

    return change
