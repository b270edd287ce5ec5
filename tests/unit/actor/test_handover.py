"""Steps pass from one thread to another in order, whole, and copied; what does not fit the spec is refused by name."""

import numpy as np
import pytest

from headrace.actor.handover import Handover, Step
from headrace.common.errors import SpecError
from headrace.common.specs import TransitionSpec

EYE = np.zeros((4, 4, 3), np.uint8)
SPEC = TransitionSpec.like({"eye": EYE, "arm": np.zeros(2, np.float32)}, [-1, -1, -1], [1, 1, 1])


def see(t):
    return {"eye": np.full_like(EYE, t % 256), "arm": np.array([t, -t], np.float32)}


def test_what_is_put_comes_out_in_order_over_many_laps():
    ring = Handover(SPEC, max_bytes=1)
    assert ring.slots == 16
    taken = 0
    for t in range(100):
        obs = see(t)
        assert ring.put(Step(float(t), False, False), obs, [t, 0, 0])
        obs["eye"][:] = 99  # a loop may use its arrays again
        if t % 7 == 6:
            while (entry := ring.next()) is not None:
                assert entry.step.reward == entry.action[0] == entry.obs["arm"][0] == taken
                assert (entry.obs["eye"] == taken % 256).all()
                ring.done()
                taken += 1
    assert taken == 98


def test_a_full_ring_takes_nothing_and_keeps_what_it_has():
    ring = Handover(SPEC, max_bytes=1)
    assert all(ring.put(None, see(t)) for t in range(16))
    assert not ring.put(None, see(16))
    assert ring.next().obs["arm"][0] == 0
    ring.done()
    assert ring.put(None, see(16))


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("eye", np.zeros((4, 4), np.uint8), r"obs\['eye'\]: shape \(4, 4\), the spec declares \(4, 4, 3\)"),
        ("eye", np.zeros((4, 4, 3), np.float32), r"obs\['eye'\]: float32, the spec declares uint8; convert it"),
        ("arm", None, r"obs\['arm'\]: missing"),
        ("arm", np.array(["a", "b"]), r"obs\['arm'\]: <U1"),
    ],
)
def test_what_is_not_as_declared_is_refused_by_name_and_not_half_taken(key, value, text):
    ring = Handover(SPEC)
    with pytest.raises(SpecError, match=text):
        ring.put(Step(0.0, False, False), {**see(1), key: value}, [0, 0, 0])
    assert ring.next() is None


def test_actions_are_checked_and_numbers_become_float32():
    ring = Handover(SPEC)
    with pytest.raises(SpecError, match=r"action: shape \(2,\), the spec declares \(3,\)"):
        ring.put(Step(0.0, False, False), see(0), [0, 0])
    ring.put(Step(0.0, False, False), {**see(0), "arm": np.array([0.5, 1], np.float64)}, [0.25, 0, 0])
    assert ring.next().obs["arm"].tolist() == [0.5, 1]
    assert ring.next().action.dtype == np.float32


def test_a_spec_is_made_from_an_observation():
    spec = TransitionSpec.like({"b": np.zeros(2), "a": 3, "c": EYE}, [-1], [1], window=3, stack=2, roles={"a": "critic"})
    assert [(o.key, o.shape, o.dtype, o.role) for o in spec.obs] == [
        ("a", (), "<i8", "critic"),
        ("b", (2,), "<f4", "both"),
        ("c", (4, 4, 3), "|u1", "both"),
    ]
    assert (spec.action.shape, spec.window, spec.stack) == ((1,), 3, 2)
    with pytest.raises(SpecError, match="'x' is no observation key"):
        TransitionSpec.like({"a": 1.0}, [-1], [1], roles={"x": "actor"})
    with pytest.raises(SpecError, match=r"obs\['a'\]: complex128 cannot be stored"):
        TransitionSpec.like({"a": 1j}, [-1], [1])
