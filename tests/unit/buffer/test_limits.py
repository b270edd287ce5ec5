"""What a buffer declares, what holds it to that, and what its system lacks."""

import pytest
from helpers.lane_rows import lane_spec

from headrace.buffer import limits
from headrace.buffer.bound import bound
from headrace.buffer.config import PoolConfig, SamplingConfig, SetConfig
from headrace.buffer.limits import FILES, OTHERS, Limits
from headrace.common.bound import Bound
from headrace.common.errors import ConfigError
from headrace.common.wire.network import NetworkConfig

SPEC = lane_spec()
POOL, NETWORK = PoolConfig(capacity=1000, max_actors=4), NetworkConfig()


def of(pool=POOL, sampling=SamplingConfig(), network=NETWORK, spec=SPEC, readers=1, rows=256):  # noqa: B008 -- frozen
    return bound(pool, sampling, network, spec, readers=readers, rows=rows)


def test_the_bound_grows_with_everything_that_lets_more_wait():
    usual = of()
    assert usual.total == sum(usual.parts.values())
    more = {
        "sessions": of(pool=PoolConfig(capacity=1000, max_actors=5)),
        "long messages": of(network=NetworkConfig(message_bytes=512 << 20)),
        "batches": of(readers=2),
        "indexes": of(sampling=SamplingConfig(sets={"all": SetConfig(share=1.0)})),
    }
    for part, changed in more.items():
        assert changed.parts[part] > usual.parts[part], part
    assert of(pool=PoolConfig(capacity=1000, max_actors=5)).total - usual.total == 8 * (1 << 20) + (256 << 10) + (64 << 10)
    assert of(spec=None).total >= usual.total
    assert str(usual).startswith(f"{usual.total / (1 << 20):,.0f} MiB (process 128, sessions ")


@pytest.fixture
def set_to(monkeypatch):
    taken = []
    monkeypatch.setattr(limits, "cap_memory", taken.append)
    monkeypatch.setattr(limits, "raise_open_files", lambda: FILES + OTHERS + 20)
    return taken


def test_the_cap_is_twice_the_bound_unless_the_config_says_more_than_the_bound(set_to):
    declared = Bound({"process": 100})
    assert Limits.set(declared, 0, 4).cap_bytes == 200
    assert Limits.set(declared, 150, 4).cap_bytes == 150
    with pytest.raises(
        ConfigError, match=r"buffer.memory_cap_bytes: 99 is below what the buffer declares.*nearest valid: 100,"
    ):
        Limits.set(declared, 99, 4)
    assert set_to == [200, 150]


def test_too_few_open_files_are_named_with_how_many_actors_they_suffice_for(set_to):
    assert Limits.set(Bound({}), 1, 10).warnings() == []
    (warning,) = Limits.set(Bound({}), 1, 11).warnings()
    assert f"RLIMIT_NOFILE {FILES + OTHERS + 20} suffices for 10 actors, pool.max_actors is 11" in warning
