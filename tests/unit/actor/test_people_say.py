"""Words on their way through an actor, and a run that is paused by its buffer alone."""

from headrace.actor.people import People


def said(people, *words):
    for word in words:
        people.say(word)
    return people.hear()


def test_words_are_sorted_and_those_that_are_none_are_told(caplog):
    people = People()
    assert said(people, "success", "quit", "discard", "jump") == ["success", "discard"]
    assert people.leave
    assert "'jump' was said, which is none of arm" in caplog.text
    assert people.hear() == []


def test_a_pause_is_asked_for_until_the_buffer_says_it_and_meanwhile_nothing_is_known():
    people = People()
    assert (people.ask(0.0, paused=False), people.paused) == ("", False)
    said(people, "pause")
    assert people.paused is None
    asked = [(at, people.ask(at, paused=False)) for at in (0.0, 0.5, 0.9, 1.0, 1.5)]
    assert [at for at, word in asked if word == "pause"] == [0.0, 1.0]
    assert people.paused is None
    assert (people.ask(1.6, paused=True), people.paused) == ("", True)
    assert (people.ask(9.0, paused=False), people.paused) == ("", False)  # somebody else had it go on


def test_the_last_wish_counts():
    people = People()
    said(people, "pause")
    assert people.ask(0.0, paused=False) == "pause"
    said(people, "resume")
    assert (people.ask(0.1, paused=False), people.paused) == ("", False)
    said(people, "pause", "resume")
    assert people.ask(0.2, paused=True) == "resume"


def test_a_word_from_elsewhere_goes_to_the_robot_where_there_is_one():
    people, heard = People(), []
    people.told("success")
    assert people.hear() == ["success"]
    people.robot = heard.append
    people.told("failure")
    assert (people.hear(), heard) == ([], ["failure"])
