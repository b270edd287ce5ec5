from dataclasses import replace

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec

from headrace.common.block import Block
from headrace.common.errors import BlockRefused
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec

SPEC = replace(lane_spec(stack=2, window=3, image=2), next_action=True, latent=2, planned=True)


def block():
    return Lane(SPEC, 1, (4, 9)).block(6)


def refused(changed, spec=SPEC):
    with pytest.raises(BlockRefused) as error:
        changed.check(spec)
    return error.value.reason, str(error.value)


@pytest.mark.parametrize("spec", [SPEC, lane_spec(), lane_spec(kind="chunk", window=4)])
def test_honest_blocks_pass(spec):
    for rows in (1, 2, 40):
        Lane(spec, 1).block(rows).check(spec)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("obs", -1, "reference"),
        ("next_obs", 10**12, "reference"),
        ("next_obs", -(2**63), "reference"),
        ("steps", 0, "steps"),
        ("steps", 4, "steps"),
        ("steps", 65535, "steps"),
        ("terminated", 2, "flag"),
        ("truncated", 255, "flag"),
        ("outcome", 3, "label"),
        ("source", 3, "label"),
        ("action", np.nan, "non-finite"),
        ("next_action", np.inf, "non-finite"),
        ("latent", np.nan, "non-finite"),
        ("has_latent", 2, "flag"),
        ("planned", np.nan, "non-finite"),
        ("has_planned", 2, "flag"),
        ("rewards", -np.inf, "non-finite"),
        ("action_age", np.inf, "non-finite"),
    ],
)
@pytest.mark.parametrize("row", [0, 2, 5])
def test_each_column_is_checked_in_each_row(column, value, reason, row):
    changed = block()
    if column == "rewards":
        changed.rows["rewards"][row, 0] = value
    elif column == "obs":
        changed.rows["obs"][row, 1] = value
    else:
        changed.rows[column][row] = value
    found, text = refused(changed)
    assert found == reason
    assert column in text


def test_a_reference_is_below_the_number_of_frames():
    changed = block()
    m = changed.n_frames
    changed.rows["obs"][3, 0] = m - 1
    changed.check(SPEC)
    changed.rows["obs"][3, 0] = m
    assert refused(changed)[0] == "reference"


def test_rewards_beyond_the_executed_steps_are_zero():
    changed = block()
    ended = int(np.flatnonzero(changed.rows["steps"] < 3)[0])
    changed.rows["rewards"][ended, 2] = 1
    assert refused(changed)[0] == "reward"


@pytest.mark.parametrize(
    "change",
    [
        lambda b: Block(b.rows, {}),
        lambda b: Block(b.rows[:0], b.frames),
        lambda b: Block(b.rows.reshape(2, 3), b.frames),
        lambda b: Block(np.zeros(6, lane_spec().row_dtype), b.frames),
        lambda b: Block(b.rows, {**b.frames, "more": b.frames["obs"]}),
        lambda b: Block(b.rows, {"obs": b.frames["obs"]}),
        lambda b: Block(b.rows, {**b.frames, "obs": b.frames["obs"][:-1]}),
        lambda b: Block(b.rows, {**b.frames, "obs": b.frames["obs"].astype(np.float64)}),
        lambda b: Block(b.rows, {**b.frames, "camera/0": b.frames["camera/0"].astype(np.float32)}),
    ],
)
def test_other_shapes_are_refused(change):
    assert refused(change(block()))[0] == "shape"


def test_frames_must_be_finite_also_where_no_row_looks():
    changed = block()
    changed.frames["obs"][-1, 0] = np.nan
    reason, text = refused(changed)
    assert (reason, "obs.obs" in text) == ("non-finite", True)


def test_checking_changes_nothing_and_takes_read_only_arrays():
    spec = TransitionSpec((ObsSpec("x", (), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))
    rows = np.zeros(2, spec.row_dtype)
    rows["steps"], rows["next_obs"] = 1, 1
    data = Block(np.frombuffer(rows.tobytes(), spec.row_dtype), {"x": np.frombuffer(bytes(8), "<f4")})
    data.check(spec)
    assert data.rows.tobytes() == rows.tobytes()


def transitions(b):
    sides = [b.frames[key][b.rows[name]].reshape(b.n_rows, -1) for key in sorted(b.frames) for name in ("obs", "next_obs")]
    return [(row["seq"], row["action"].tobytes(), *(s[i].tobytes() for s in sides)) for i, row in enumerate(b.rows)]


def test_joined_blocks_hold_the_same_transitions_and_come_apart_again():
    blocks = [Lane(SPEC, lane, (4, 9)).block(rows) for lane, rows in ((1, 6), (2, 1), (3, 20))]
    joined = Block.join(blocks)
    joined.check(SPEC)
    assert transitions(joined) == [t for b in blocks for t in transitions(b)]
    assert joined.nbytes == sum(b.nbytes for b in blocks)
    part = joined.part(4, 9)
    part.check(SPEC)
    assert transitions(part) == transitions(joined)[4:9]
    assert part.n_frames < joined.n_frames
    for b in blocks:
        b.check(SPEC)  # unchanged


@pytest.mark.parametrize("wrong", [-1, 10**6])
@pytest.mark.parametrize("name", ["obs", "next_obs"])
def test_a_reference_out_of_its_own_block_is_not_joined(name, wrong):
    blocks = [block(), block()]
    blocks[0].rows[name][2, 1] = min(wrong, blocks[0].n_frames)
    with pytest.raises(BlockRefused, match="reference"):
        Block.join(blocks)


def test_priorities_follow_their_rows():
    lane = Lane(SPEC, 1, (4, 9))
    first, second, bare = (lane.block(3) for _ in range(3))
    first, second = replace(first, priorities=np.arange(3.0)), replace(second, priorities=np.arange(3.0, 6.0))
    assert first.nbytes == replace(first, priorities=None).nbytes + 24
    joined = Block.join([first, second])
    assert joined.priorities.tolist() == [0, 1, 2, 3, 4, 5]
    assert joined.part(2, 5).priorities.tolist() == [2, 3, 4]
    assert Block.join([bare]).part(0, 1).priorities is None
    for mixed in ([first, bare], [bare, first]):
        with pytest.raises(BlockRefused, match="1 of 2 blocks bring priorities"):
            Block.join(mixed)
    with pytest.raises(BlockRefused, match=r"priorities \(2,\) for 3 rows"):
        replace(bare, priorities=np.zeros(2))


@pytest.mark.parametrize(("byte", "reason"), [(0, ""), (1, ""), (2, "flag"), (255, "flag")])
def test_an_observation_of_flags_holds_nothing_else(byte, reason):
    spec = TransitionSpec((ObsSpec("held", (2,), "|b1"),), ActionSpec((1,), (-1.0,), (1.0,)))
    rows = np.zeros(1, spec.row_dtype)
    rows["steps"], rows["next_obs"] = 1, 1
    made = Block(rows, {"held": np.frombuffer(bytes([0, 1, byte, 0]), np.bool_).reshape(2, 2)})
    if not reason:
        made.check(spec)
        return
    with pytest.raises(BlockRefused, match=r"obs\.held must be 0 or 1") as refused:
        made.check(spec)
    assert refused.value.reason == reason
