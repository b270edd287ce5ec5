"""Which files become the demonstrations of a run, when they are read, and that other files are refused."""

import shutil

import numpy as np
import pytest
from helpers.demo_files import HIGH, LOW, TAKES, write_d4rl, write_minari, write_robomimic
from helpers.lane_rows import Lane, lane_spec, prove

from headrace.buffer import SACReplayPool, export_pool
from headrace.buffer.config import PoolConfig
from headrace.buffer.handles import PINNED
from headrace.buffer.opening import existing
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.pinned import DEMOS
from headrace.buffer.settings import BufferSettings
from headrace.common.config import load
from headrace.common.errors import ConfigError, PoolDamaged, SpecError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.wire.network import NetworkConfig
from headrace.launch import cli, pinning
from headrace.launch.config import make_config
from headrace.launch.pinning import pin_demos

STEPS = sum(take.length for take in TAKES)
ARM = TransitionSpec((ObsSpec("agent.pose", (2,), "<f4"),), ActionSpec((2,), LOW, HIGH))


def config_of(*sources, **sections):
    base = {"env": {"id": "headrace.launch.chaos.scripted:make"}, "pool": {"demos": [str(source) for source in sources]}}
    return make_config({**base, **sections})


def export(path, n=30, spec=None, actor=9):
    spec = spec or lane_spec()
    pool = SACReplayPool(n, spec=spec)
    pool.insert(Lane(spec, actor).block(n), f"teacher-{actor}", 1, 1)
    export_pool(pool, path)
    return path


def test_exports_are_put_one_behind_the_other_once(tmp_path, monkeypatch):
    config = config_of(export(tmp_path / "a"), export(tmp_path / "b", 12, actor=8))
    pinned = pin_demos(config, tmp_path / "pool")
    batch = pinned.reader.gather(np.arange(42))
    prove(batch, lane_spec())
    assert batch.rows["action"][:, 0].tolist() == [9] * 30 + [8] * 12
    assert (pinned.spec, pinned.actors) == (lane_spec(), ["teacher-9", "teacher-8"])
    assert pinned.facts()["sources"] == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert sorted(p.name for p in (tmp_path / "pool").iterdir()) == [DEMOS]
    monkeypatch.setattr(pinning, "_pin", None)  # it is not read again
    assert pin_demos(config, tmp_path / "pool").facts() == pinned.facts()


def test_exports_that_hold_the_same_numbers_are_both_taken(tmp_path):
    pinned = pin_demos(config_of(export(tmp_path / "a"), export(tmp_path / "b", 31)), tmp_path / "pool")
    assert (len(pinned), pinned.actors) == (61, ["teacher-9", "teacher-9@2"])


@pytest.mark.parametrize("kind", ["minari", "robomimic", "d4rl"])
def test_data_sets_are_read_as_import_reads_them(tmp_path, kind, monkeypatch):
    write = {"robomimic": write_robomimic, "d4rl": write_d4rl}
    source = write[kind](tmp_path / "x.hdf5") if kind in write else write_minari(tmp_path, monkeypatch)
    key = {"minari": "agent.pose", "robomimic": "pose", "d4rl": "obs"}[kind]
    config = config_of(source, window={"n_step": 3, "stack": 2})
    like = None
    if kind != "minari":
        with pytest.raises(ConfigError, match=rf"pool.demos: .*{source.name}: --low.*headrace pool import"):
            pin_demos(config, tmp_path / "pool")
        obs = [ObsSpec("agentview_image", (4, 4, 3), "|u1"), ObsSpec(key, (2,), "<f4")][kind != "robomimic" :]
        like = TransitionSpec(tuple(obs), ActionSpec((2,), LOW, HIGH), 3, "steps", 2)
    pinned = pin_demos(config, tmp_path / "pool", like)
    assert (pinned.spec.window, pinned.spec.stack, pinned.spec.action.low) == (3, 2, LOW)
    dropped = len(pinned) - STEPS  # D4RL's file says what came after each step, the others too
    assert dropped == 0
    batch = pinned.reader.gather(np.arange(STEPS))
    np.testing.assert_array_equal(batch.obs[key][:, -1, 1], batch.rows["t"])
    np.testing.assert_array_equal(batch.obs[key][:, -1, 0], batch.rows["episode"])
    np.testing.assert_array_equal(batch.next_obs[key][:, -1, 1], batch.rows["t"] + batch.rows["steps"])


def test_other_contents_under_the_same_path_are_refused_and_the_same_elsewhere_are_not(tmp_path):
    config = config_of(export(tmp_path / "a"))
    pin_demos(config, tmp_path / "pool")
    shutil.move(tmp_path / "a", tmp_path / "moved")
    assert len(pin_demos(config, tmp_path / "pool")) == 30  # nobody knows of others
    assert len(pin_demos(config_of(tmp_path / "moved"), tmp_path / "pool")) == 30
    export(tmp_path / "a", 31)
    with pytest.raises(ConfigError, match=r"has demonstrations of digest (\w+) \(.*/a\).* of digest (?!\1)\w+ \(.*/a\)"):
        pin_demos(config, tmp_path / "pool")
    file = write_robomimic(tmp_path / "x.hdf5")
    like = TransitionSpec(
        (ObsSpec("agentview_image", (4, 4, 3), "|u1"), ObsSpec("pose", (2,), "<f4")), ActionSpec((2,), LOW, HIGH)
    )
    pin_demos(config_of(file), tmp_path / "other", like)
    write_robomimic(file, TAKES[:3])
    with pytest.raises(ConfigError, match="has demonstrations of digest"):
        pin_demos(config_of(file), tmp_path / "other", like)


def test_what_cannot_be_read_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "text").write_text("hello")
    with SACReplayPool(5, path=tmp_path / "live", spec=lane_spec()) as pool:
        pool.insert(Lane(lane_spec(), 1).block(5), "a", 1, 1)
    damaged = export(tmp_path / "damaged")
    (damaged / "rows-00000.npz").write_bytes(b"no zip")
    stacked = export(tmp_path / "stacked", spec=lane_spec(stack=3))
    for source, error, said in (
        ("missing", ConfigError, "pool.demos: .*missing does not exist"),
        ("text", ConfigError, "pool.demos: .*text: is none of what is read: an export of headrace"),
        ("live", PoolDamaged, "pools are exported first"),
        ("damaged", PoolDamaged, "rows-00000.npz"),
    ):
        with pytest.raises(error, match=said):
            pin_demos(config_of(tmp_path / source), tmp_path / "pool")
    first = export(tmp_path / "a")
    for bad in (stacked, write_minari(tmp_path, monkeypatch)):
        said = rf"pool\.demos: {bad}: the (export|file) does not fit the pool .*; the pool's is that of {first}"
        with pytest.raises(SpecError, match=said):
            pin_demos(config_of(first, first, bad, first), tmp_path / "pool")
    with pytest.raises(SpecError, match=rf"pool\.demos: {first}: .*stack: 3 != 1.*; the pool's is that of the run's env"):
        pin_demos(config_of(first, stacked), tmp_path / "pool", lane_spec(stack=3))
    assert not (tmp_path / "pool").exists() or not list((tmp_path / "pool").iterdir())


def test_a_kill_in_the_middle_leaves_what_the_next_start_removes(tmp_path):
    hidden = tmp_path / "pool" / ".demos.partial"
    hidden.mkdir(parents=True)
    (hidden / "half").write_text("")
    assert len(pin_demos(config_of(export(tmp_path / "a")), tmp_path / "pool")) == 30
    assert not hidden.exists()


def test_options_that_do_not_go_with_them_are_refused(tmp_path):
    source = export(tmp_path / "a", 20)
    with pytest.raises(ConfigError, match=r"sampling.method: prioritised, but pinned demonstrations \(pool.demos\)"):
        config_of(source, sampling={"method": "prioritised"})
    pacing = {"offline_updates": 10}
    with pytest.raises(ConfigError, match=r"run.pool_from and pool.demos empty.*nearest valid: 0"):
        config_of(pacing=pacing)
    config = config_of(source, pacing={**pacing, "min_fill": 64}, learner={"batch_size": 64})
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"pool.demos: 20 rows, too few .*batch_size 64; nearest valid: .*batch_size 20"):
            pin_demos(config, tmp_path / "pool")
    halves = {
        "demo": {"share": 0.5, "source": ["demo"], "when_small": "replace"},
        "online": {"share": 0.5, "source": ["policy"]},
    }
    config = config_of(source, pacing={**pacing, "min_fill": 64}, learner={"batch_size": 64}, sampling={"sets": halves})
    assert len(pin_demos(config, tmp_path / "pool")) == 20


def settings_of(tmp_path, config):
    return BufferSettings(
        NetworkConfig(),
        load(PoolConfig, {"capacity": 50}),
        tmp_path / "pool",
        PacingConfig(),
        "run",
        0,
        snapshot_dir=tmp_path / "snapshots",
        demos=lambda: pin_demos(config, tmp_path / "pool"),
    )


def test_a_buffer_has_a_pool_before_any_actor_and_keeps_it(tmp_path):
    settings = settings_of(tmp_path, config_of(export(tmp_path / "a")))
    pool = existing(settings)
    assert (pool.spec, pool.size, pool.drawable) == (lane_spec(), 0, 30)
    pool.insert(Lane(lane_spec(), 1).block(20), "sim", 1, 1)
    pool.save(tmp_path / "snapshots")
    pool.close()
    pool = existing(settings)
    assert (pool.size, pool.drawable) == (20, 50)
    pool.close()
    shutil.rmtree(tmp_path / "pool")  # a memory disk after a restart of the machine
    (tmp_path / "pool").mkdir()
    pool = existing(settings)
    assert (pool.size, pool.demo_rows) == (20, 30)
    assert pool.gather(np.array([PINNED, 0])).rows["action"][:, 0].tolist() == [9, 1]
    pool.close()
    shutil.rmtree(tmp_path / "pool")
    (tmp_path / "pool").mkdir()
    shutil.rmtree(tmp_path / "a")
    export(tmp_path / "a", 31)
    with pytest.raises(ConfigError, match="what is loaded has demonstrations of digest"):
        existing(settings)


def test_info_says_what_is_pinned(tmp_path, capsys):
    pool = existing(settings_of(tmp_path, config_of(export(tmp_path / "a"))))
    assert cli.main(["pool", "info", str(tmp_path / "pool")]) == 0
    out = capsys.readouterr().out
    assert "demo_rows         30" in out
    assert str(tmp_path / "a") in out
    assert cli.main(["pool", "info", str(tmp_path / "pool" / DEMOS)]) == 0
    assert "rows_live         30" in capsys.readouterr().out
    pool.close()
