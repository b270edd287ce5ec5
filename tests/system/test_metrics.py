"""A run's figures: what real roles serve is what the dashboard asks for, and one run's metrics hold those of all processes."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path

from helpers.roles import roles, scripted
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana.json"
NAME = re.compile(r"headrace_\w+")


def asked():
    """Names of metrics in the dashboard, as they stand there."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {name for panel in panels for target in panel["targets"] for name in NAME.findall(target["expr"])}


def scrape(address):
    """Name of each sample, or of its family where there is none yet -> its samples."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        found[family.name + "_total" * (family.type == "counter")] = family.samples
    return found


def wait(what, deadline_s=60.0):
    end = time.monotonic() + deadline_s
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def test_every_figure_of_the_dashboard_is_served_by_a_role_and_all_are_in_one_runs_metrics(tmp_path):
    config = scripted(
        metrics={"bind": "127.0.0.1:0"},
        sinks={"period_s": 0.2},
        eval={"every": 100, "episodes": 1},
        pacing={"env_steps": 100_000},
        model={"options": {"hidden": [16]}},
    )
    with roles(tmp_path, config) as run:
        run.buffer()
        for name in ("arm-0", "arm-1"):
            run.actor(name, "--run.name", "run")
        run.actor("judge", "--evaluate")
        run.start("learner", "learner", str(run.config), "--connect", run.endpoint)
        status = run.wait(lambda s: s["updates"] > 20 and len(s["actors"]) == 2 and s["evaluations"], 120)
        targets = {}
        for path in wait(lambda: len(list((run.run / "metrics").glob("*.json"))) == 2) and (run.run / "metrics").glob("*.json"):
            ((target,),) = [[entry] for entry in json.loads(path.read_text())]
            targets[target["labels"]["id"]] = target["targets"][0]
        assert set(targets) == {"buffer", "learner"}
        log = wait(lambda: re.search(r"at http://(\S+)/metrics", run.log("arm-0")))
        served = {who: scrape(address) for who, address in {**targets, "arm-0": log[1]}.items()}
        missing = asked() - {name for found in served.values() for name in found}
        assert not missing, f"asked for by {DASHBOARD.name}, served by nobody: {missing}"
        for who, role in (("buffer", "buffer"), ("learner", "learner"), ("arm-0", "actor")):
            assert served[who]["headrace_info"][0].labels["role"] == role
        buffer = served["buffer"]
        assert buffer["headrace_env_steps_total"][0].value >= status["env_steps"]
        rates = {sample.labels["actor"]: sample.value for sample in buffer["headrace_actor_env_steps_total"]}
        assert rates.keys() == {"arm-0", "arm-1"}
        assert served["arm-0"]["headrace_uplink_env_steps_total"][0].value > 0
        lines = [json.loads(line) for line in (run.run / "metrics.jsonl").read_text().splitlines()]
        assert lines[-1]["run/actors"].keys() == rates.keys()
        assert lines[-1]["run/actors"]["arm-1"].keys() >= {"host", "env_steps_s", "waiting_steps", "silent_s"}
        assert lines[-1]["run/memory"]["rss_bytes"] > 1 << 20
        assert 0 < lines[-1]["run/pool_fill"] <= 1
        events = next((run.run / "tensorboard").iterdir())
        tags = {value.tag for event in EventFileLoader(str(events)).Load() for value in event.summary.value}
        assert {"run/actors/arm-0/env_steps_s", "run/actors/arm-1/policy_age_s", "run/memory/rss_bytes"} <= tags
