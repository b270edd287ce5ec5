"""Where metrics go."""

import json
import math
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headrace.common.errors import ConfigError
from headrace.learner.sinks import MetricSinks, SinkConfig

PLAIN = SinkConfig(tensorboard=False)


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_one_object_a_line_at_once(tmp_path):
    with MetricSinks(tmp_path, PLAIN, wall=lambda: 12.5) as sinks:
        sinks.write({"learner/updates": 3, "critic/loss": torch.tensor(0.5), "run/evaluation": {"return_mean": np.float32(-2)}})
        assert lines(tmp_path) == [
            {"time_s": 12.5, "learner/updates": 3, "critic/loss": 0.5, "run/evaluation": {"return_mean": -2.0}}
        ]
    with MetricSinks(tmp_path, PLAIN) as sinks:
        sinks.write({"learner/updates": 4, "bad": math.nan, "worse": math.inf, "phase": "filling", "none": None})
    assert lines(tmp_path)[1]["bad"] is None
    assert lines(tmp_path)[1]["worse"] is None
    assert lines(tmp_path)[1]["phase"] == "filling"


def test_a_torn_last_line_is_left_alone(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"learner/updates": 1}\n{"learner/up')
    with MetricSinks(tmp_path, PLAIN) as sinks:
        sinks.write({"learner/updates": 2})
    text = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert text[1] == '{"learner/up'
    assert json.loads(text[2])["learner/updates"] == 2


class Disk:
    """Takes nothing while ``full``; the device that is always full stands in for TensorBoard's file."""

    def __init__(self, monkeypatch):
        self.full, write = False, os.write
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, b"" if self.full else data))


def test_a_moment_that_a_disk_does_not_take_is_left_out_and_named(tmp_path, monkeypatch, caplog):
    disk = Disk(monkeypatch)
    with MetricSinks(tmp_path, PLAIN) as sinks:
        sinks.write({"learner/updates": 1})
        disk.full = True
        for step in (2, 3):
            sinks.write({"learner/updates": step})
            assert sinks.not_logged == "No space left on device"
        disk.full = False
        sinks.write({"learner/updates": 4})
        assert sinks.not_logged == ""
    assert [line["learner/updates"] for line in lines(tmp_path)] == [1, 4]
    assert len(caplog.records) == 1


def test_tensorboard_goes_on_in_a_new_file_once_its_disk_takes_it_again(tmp_path, monkeypatch):
    with MetricSinks(tmp_path, SinkConfig()) as sinks:
        assert not (tmp_path / "tensorboard").exists()
        sinks.write({"learner/updates": 1})
        (board,) = sinks._sinks
        monkeypatch.setattr(board._writer, "flush", lambda: os.write(os.open("/dev/full", os.O_WRONLY), b"x"))
        sinks.write({"learner/updates": 2})
        assert sinks.not_logged == "No space left on device"
        assert len(list((tmp_path / "tensorboard").iterdir())) == 1  # no new one before there is something to write
        sinks.write({"learner/updates": 3})
        assert sinks.not_logged == ""
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    assert [line["learner/updates"] for line in lines(tmp_path)] == [1, 2, 3]


def test_tensorboard_reads_what_was_written(tmp_path):
    with MetricSinks(tmp_path, SinkConfig()) as sinks:
        sinks.write({"learner/updates": 5, "critic/loss": 0.25, "nan": math.nan, "run/evaluation": {"return_mean": 3.0}})
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (file,) = (tmp_path / "tensorboard").iterdir()
    events = [e for e in EventFileLoader(str(file)).Load() if e.HasField("summary")]
    values = {v.tag: v.tensor.float_val[0] for e in events for v in e.summary.value}
    assert values == {"learner/updates": 5.0, "critic/loss": 0.25, "run/evaluation/return_mean": 3.0}
    assert {e.step for e in events} == {5}


def test_weights_and_biases_gets_numbers_of_the_runs_own_id(tmp_path, monkeypatch):
    seen = []
    run = SimpleNamespace(log=lambda numbers, step: seen.append((step, numbers)), finish=lambda: seen.append("finished"))
    fake = SimpleNamespace(init=lambda **options: seen.append((options["id"], options["resume"])) or run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with MetricSinks(tmp_path / "run-1", SinkConfig(tensorboard=False, wandb=True)) as sinks:
        sinks.write({"learner/updates": 4, "critic/loss": 1.5, "phase": "text", "nan": math.nan})
    assert seen == [("run-1", "allow"), (4, {"learner/updates": 4.0, "critic/loss": 1.5}), "finished"]


@pytest.mark.parametrize(
    ("name", "config"), [("tensorboard", SinkConfig()), ("wandb", SinkConfig(tensorboard=False, wandb=True))]
)
def test_a_sink_that_is_asked_for_and_missing_is_named(tmp_path, monkeypatch, name, config):
    for module in [m for m in sys.modules if m.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"sinks\.{name}: true, but {name} cannot be imported"):
        MetricSinks(tmp_path, config)
