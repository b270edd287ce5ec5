import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.buffer.apportion import Shares, Turns, largest_remainder


def shares_of(weights):
    return [w / sum(weights) for w in weights]


def test_half_of_256_is_128():
    shares = Shares([0.5, 0.5])
    for _ in range(10):
        assert shares.peek(256) == [128, 128]
        shares.take([128, 128])


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.lists(st.integers(1, 300), min_size=1, max_size=40))
def test_every_batch_is_whole_and_the_long_run_exact(weights, batches):
    shares = Shares(shares_of(weights))
    drawn = [0] * len(weights)
    for size in batches:
        counts = shares.peek(size)
        assert sum(counts) == size
        assert min(counts) >= 0
        shares.take(counts)
        drawn = [d + c for d, c in zip(drawn, counts, strict=True)]
        for d, share in zip(drawn, shares.shares, strict=True):
            assert abs(d - share * sum(drawn)) < len(weights)
        assert shares.check_valid() == (True, "")


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.lists(st.lists(st.integers(1, 300), max_size=12), max_size=6))
def test_to_begin_anew_costs_less_than_two_rows_a_share(weights, lives):
    """A buffer that is started again carries nothing over from the one before."""
    drawn = [0] * len(weights)
    for sizes in lives:
        shares = Shares(shares_of(weights))
        for size in sizes:
            counts = shares.peek(size)
            shares.take(counts)
            drawn = [d + c for d, c in zip(drawn, counts, strict=True)]
    for d, share in zip(drawn, shares_of(weights), strict=True):
        assert abs(d - share * sum(drawn)) < 2 * max(1, len(lives))


@given(st.integers(1, 9), st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=6))
def test_to_begin_anew_costs_one_row_a_key(keys, lives):
    drawn = dict.fromkeys(range(keys), 0)
    for sizes in lives:
        turns = Turns()
        for size in sizes:
            for key, n in turns.divide(size, dict.fromkeys(drawn, 1000)).items():
                drawn[key] += n
    assert max(drawn.values()) - min(drawn.values()) <= len(lives)


def test_a_share_below_one_row_gets_its_row_in_time():
    shares = Shares([0.99, 0.01])
    rows = []
    for _ in range(100):
        counts = shares.peek(1)
        shares.take(counts)
        rows.append(counts[1])
    assert sum(rows) == 1


def test_looking_changes_nothing_and_the_state_survives_json():
    shares, again = Shares(shares_of([3, 5, 9])), Shares(shares_of([3, 5, 9]))
    for _ in range(5):
        shares.take(shares.peek(10))
    again.set_state(json.loads(json.dumps(shares.get_state())))
    assert [shares.peek(10) for _ in range(3)] == [again.peek(10)] * 3


def test_a_carry_that_cannot_be_is_found():
    shares = Shares([0.5, 0.5])
    shares.set_state([3.0, -3.0])
    assert not shares.check_valid()[0]
    shares.set_state([1.0, 0.0])
    assert not shares.check_valid()[0]


@given(st.lists(st.floats(-2, 50), min_size=1, max_size=8), st.integers(0, 200))
def test_a_remainder_is_always_placed(wanted, total):
    counts = largest_remainder(wanted, total)
    assert sum(counts) == total
    assert min(counts) >= 0


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 20), min_size=1), st.data())
def test_keys_share_equally_as_far_as_they_can(room, data):
    total = data.draw(st.integers(0, sum(room.values())))
    counts = Turns().divide(total, room)
    assert sum(counts.values()) == total
    able = [n for key, n in counts.items() if n < room[key]]
    assert all(counts[key] <= room[key] for key in room)
    assert all(n <= min(able) + 1 for n in counts.values()) if able else True


def test_the_remainder_goes_round_and_the_long_run_is_exact():
    turns, drawn = Turns(), dict.fromkeys([2, 5, 7], 0)
    for _ in range(30):
        for key, n in turns.divide(4, dict.fromkeys(drawn, 100)).items():
            drawn[key] += n
    assert drawn == {2: 40, 5: 40, 7: 40}


def test_a_key_that_comes_takes_its_turn_and_one_that_goes_is_not_missed():
    turns = Turns()
    assert turns.divide(1, {1: 9, 3: 9}) == {1: 1, 3: 0}
    assert turns.divide(1, {1: 9, 2: 9, 3: 9}) == {1: 0, 2: 1, 3: 0}
    assert turns.divide(1, {1: 9, 2: 9}) == {1: 1, 2: 0}
    again = Turns()
    again.set_state(json.loads(json.dumps(turns.get_state())))
    assert again.divide(1, {1: 9, 2: 9}) == {1: 0, 2: 1}
