"""The classifier's command: which episodes count, what their images show, and rates of others than those learned from."""

import json

import numpy as np
import pytest
from helpers.demo_import import fails, run
from helpers.judged import EYE, SPEC, STEPS, bright, picture, pool_of

from headrace.actor.success import SuccessClassifier, read_classifier
from headrace.buffer.trails import trails
from headrace.common.errors import ConfigError
from headrace.launch.chaos.verdict import failure_bound
from headrace.launch.classifier_frames import NOBODY_KNOWS, NOT, SUCCESS, Clip, Rule, held_out, read_clips, together
from headrace.launch.classifier_report import figures
from headrace.launch.transfer import rows_of
from headrace.learner.classifier import ClassifierOptions, train_classifier

QUICK = ("--updates", 60, "--channels", 4, "--strides", 2, "--batch-size", 16, "--shift", 1, "--lr", 0.01)


def made(place, outcomes, seed=0, spec=SPEC):
    with pool_of(outcomes, place, seed, spec):
        return place


def clip(success, *images, said=None):
    """An episode whose images have these brightnesses."""
    return Clip("arm", 0, success, {"eye": np.array(images, np.uint8)[:, None, None, None]}, said)


def test_only_labelled_whole_episodes_count_and_of_judged_ones_those_that_people_contradict():
    with pool_of("sfucvmr") as pool:
        found = read_clips(pool, (EYE,), lambda done, total: None)
    assert [(c.episode, c.success, c.said) for c in found.clips] == [
        (0, True, None),
        (1, False, None),
        (4, False, True),
        (5, True, False),
    ]
    assert all(c.images["eye"].shape == (STEPS + 1, *EYE.shape) for c in found.clips)
    assert dict(found.left_out) == {
        "nobody has labelled them": 2,
        "a classifier judged them, and nobody has said otherwise": 1,
    }
    assert found.clips[0].images["eye"][-1, 4, 4, 0] == 230  # what came after the last step


def test_images_before_a_success_show_none_but_for_those_of_which_nobody_knows():
    labels = Rule(last=2, margin=1).labels
    assert labels(clip(True, 0, 0, 0, 0, 0)).tolist() == [NOT, NOT, NOBODY_KNOWS, SUCCESS, SUCCESS]
    assert labels(clip(False, 0, 0)).tolist() == [NOT, NOT]
    assert labels(clip(True, 0, 0)).tolist() == [SUCCESS, SUCCESS]
    images, success = together([clip(True, 1, 2, 3, 4, 5), clip(False, 6, 7)], Rule(2, 1))
    assert images["eye"].ravel().tolist() == [1, 2, 4, 5, 6, 7]
    assert success.tolist() == [False, False, True, True, False, False]


def test_episodes_are_held_out_whole_some_of_each_kind():
    clips = [clip(i % 3 == 0, i) for i in range(12)]
    train, test = held_out(clips, 0.25, np.random.default_rng(0))
    assert (sum(c.success for c in test), len(test)) == (1, 3)
    assert sorted(c.images["eye"].item() for c in train + test) == list(range(12))
    assert all(
        not c.success for c in held_out([clip(True, 1), clip(True, 2), clip(False, 3)], 0.9, np.random.default_rng(0))[0][1:]
    )
    with pytest.raises(ConfigError, match="1 labelled successes; two are needed"):
        held_out([clip(True, 0), clip(False, 0)], 0.5, np.random.default_rng(0))


def test_false_positives_are_counted_by_episode_with_their_bound():
    rule = Rule(last=1, margin=1)
    said = [
        (clip(False, 0, 0, 0, 0), [0.9, 0.9, 0.1, 0.9]),  # the first image is not looked at
        (clip(False, 0, 0, 0, 0), [0.1, 0.9, 0.9, 0.1]),  # false
        (clip(True, 0, 0, 0, 0, 0, 0), [0.1, 0.9, 0.9, 0.1, 0.9, 0.9]),  # early
        (clip(True, 0, 0, 0, 0), [0.1, 0.1, 0.9, 0.9]),  # in time
        (clip(True, 0, 0, 0, 0), [0.1, 0.1, 0.1, 0.4]),  # missed
    ]
    found = figures([(c, np.array(p)) for c, p in said], rule, 0.5, 2)
    assert (found.failures, found.false, found.successes, found.early, found.missed) == (2, 1, 3, 1, 1)
    assert (found.images, found.wrong) == ((3, 16), (1, 7))
    assert found.false_positive_rate == 2 / 5
    assert found.false_positive_bound == failure_bound(2, 5)
    assert any(f"2 of 5 episodes; 95 % bound {failure_bound(2, 5):.1%}" in line for line in found.lines())


def test_record_train_check(tmp_path, capsys):
    runs = [made(tmp_path / "a", "sfsuvf"), made(tmp_path / "b", "ssff", seed=1)]
    told = run(capsys, "classifier", "record", *runs, tmp_path / "set", "--cameras", "eye")
    assert "9 episodes, 4 successes and 5 failures, 63 images a camera" in told
    assert "1 episode left out: nobody has labelled them" in told
    with rows_of(tmp_path / "set", tmp_path / "rows") as pool:
        assert [o.key for o in pool.spec.obs] == ["eye"]
        assert sorted({t.actor for t in trails(pool)}) == ["a", "b"]
    again = run(capsys, "classifier", "record", tmp_path / "set", runs[0], tmp_path / "more", "--cameras", "eye")
    assert "9 episodes" in again  # each once

    out = tmp_path / "cube.hrw"
    told = run(capsys, "classifier", "train", tmp_path / "set", out, *QUICK, "--hold", 1)
    assert "judged by 3 that were held out" in told
    classifier, name = read_classifier(out, "FILE")
    about = classifier.about
    assert about["held_out"]["false_positive_bound_95"] == failure_bound(
        about["held_out"]["false"] + about["held_out"]["early"], 3
    )
    assert about["trained_on"] == {"successes": 3, "failures": 3}
    assert len(about["learned_from"]) == 6
    rng = np.random.default_rng(9)
    for kind in (True, False):
        seen = {"eye": np.stack([picture(rng, success=kind) for _ in range(8)])}
        assert ((classifier.probability(seen) >= 0.5) == kind).all()

    fresh = made(tmp_path / "fresh", "sff", seed=2)
    checked = json.loads(run(capsys, "classifier", "check", out, fresh, "--json"))
    assert checked["classifier"] == name
    assert (checked["failures"], checked["successes"], checked["missed"], checked["trained_on_and_left_out"]) == (2, 1, 0, 0)
    assert (checked["false_positive_rate"], checked["false_positive_bound_95"]) == (0, failure_bound(0, 3))
    assert json.loads(run(capsys, "classifier", "check", out, tmp_path / "set", "--json"))["trained_on_and_left_out"] == 6
    assert json.loads(run(capsys, "classifier", "check", out, fresh, "--hold", 2, "--json"))["hold"] == 2


def test_the_same_seed_trains_the_same_classifier():
    rng = np.random.default_rng(0)
    images = {"eye": np.stack([picture(rng, success=i < 4) for i in range(8)])}
    options = ClassifierOptions(channels=(2,), strides=(2,), updates=3, batch_size=4, shift=1)
    first, second = (train_classifier(images, np.arange(8) < 4, options) for _ in range(2))
    assert first.pack() == second.pack()
    SuccessClassifier(first)


def test_what_cannot_be_is_refused_by_name(tmp_path, capsys):
    pool, out = made(tmp_path / "pool", "sfsf"), tmp_path / "out.hrw"
    assert "--cameras pose: no camera" in fails(capsys, "classifier", "train", pool, out, "--cameras", "pose")
    assert "--last: 0" in fails(capsys, "classifier", "train", pool, out, "--last", 0)
    assert "classifier.hold" in fails(capsys, "classifier", "train", pool, out, "--hold", 0)
    assert "two are needed" in fails(capsys, "classifier", "train", made(tmp_path / "one", "sf"), out)
    assert not out.exists()
    wide = tmp_path / "wide.hrw"
    wide.write_bytes(bright().pack())
    (tmp_path / "junk.hrw").write_bytes(b"junk")
    assert "is no classifier" in fails(capsys, "classifier", "check", tmp_path / "junk.hrw", pool)
    assert "no pool here" in fails(capsys, "classifier", "check", wide, tmp_path / "nothing")
