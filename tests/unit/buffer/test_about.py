"""What rows do not say of themselves travels with them, and what contradicts itself is refused by name."""

import pytest

from headrace.buffer import about
from headrace.buffer.about import About, Last
from headrace.common.errors import PoolDamaged, SpecError

SAID = About(20.0, {0: "push", 1: "pull"}, {"arm": {3: Last((0.5, -1.0), 2.0)}})


def test_it_is_read_as_it_was_written(tmp_path):
    assert about.read(tmp_path) == about.read(None) == about.read("") == About()
    about.write(tmp_path, About())
    assert list(tmp_path.iterdir()) == []
    about.write(tmp_path, SAID)
    assert about.read(tmp_path) == SAID


@pytest.mark.parametrize(
    "change",
    [
        {"fps": float("inf")},
        {"fps": -1},
        {"tasks": {"x": "y"}},
        {"tasks": {"-1": "y"}},
        {"tasks": [1]},
        {"lasts": {"arm": {"0": []}}},
        {"lasts": {"arm": {"0": [float("nan"), 1.0]}}},
        {"lasts": {"arm": 3}},
    ],
)
def test_what_is_none_is_refused(change):
    with pytest.raises(PoolDamaged, match="here"):
        About.from_dict({**SAID.to_dict(), **change}, "here")


def test_tasks_of_the_same_words_are_one_and_others_get_free_numbers():
    assert SAID.numbered({0: "pull", 1: "push", 2: "lift"}) == {0: 1, 1: 0, 2: 2}
    assert SAID.numbered({0: "lift", 5: "turn", 1: "drop"}) == {0: 2, 1: 3, 5: 5}
    assert About().numbered({7: "push"}) == {7: 7}


def test_two_are_joined_or_refused():
    other = About(0.0, {2: "lift"}, {"arm": {4: Last((0.0, 0.0), 0.0)}, "leg": {}})
    both = SAID.joined(other.renamed({"arm": "arm@2"}), "there")
    assert (both.fps, both.tasks) == (20.0, {0: "push", 1: "pull", 2: "lift"})
    assert {actor: list(found) for actor, found in both.lasts.items()} == {"arm": [3], "arm@2": [4]}
    with pytest.raises(SpecError, match="there: 10 steps a second, the pool's rows are of 20"):
        SAID.joined(About(10.0), "there")
    with pytest.raises(SpecError, match="task 1 is 'lift', in the pool it is 'pull'"):
        SAID.joined(About(tasks={1: "lift"}), "there")
