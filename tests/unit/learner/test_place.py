"""The place of a process in a learner's group: what torchrun or train says, and what no place can be."""

import pytest

from headrace.common.errors import ConfigError
from headrace.learner.place import Place, rank_name

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "HEADRACE_RANKS")


@pytest.fixture(autouse=True)
def _nobody(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_variables_a_process_is_alone():
    assert Place.here() == Place(0, 1, 0, 1, "")


def test_what_torchrun_says(monkeypatch):
    for name, value in zip(VARIABLES, ("5", "8", "1", "4"), strict=False):
        monkeypatch.setenv(name, value)
    assert Place.here() == Place(5, 8, 1, 4, "")


@pytest.mark.parametrize("place", [Place(), Place.of_one_host(1, 3, "run/.ranks")])
def test_the_variables_of_a_place_say_it(place, monkeypatch):
    for name, value in place.environment().items():
        monkeypatch.setenv(name, value)
    assert Place.here() == place


@pytest.mark.parametrize("name", VARIABLES[:4])
def test_variables_that_are_no_numbers_are_refused(name, monkeypatch):
    monkeypatch.setenv(name, "two")
    with pytest.raises(ConfigError, match=f"^{name}: 'two' in the environment is no number"):
        Place.here()


def test_rank_0_is_the_learner_itself():
    assert [rank_name("arm", rank) for rank in (0, "0", "", 1, "12")] == ["arm", "arm", "arm", "arm-1", "arm-12"]
