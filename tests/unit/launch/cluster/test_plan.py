"""The plan: exact command lines that the command line reads, in order; and the same for each engine."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

from headrace.common.config import load
from headrace.common.errors import ConfigError
from headrace.launch.cli import main, make_parser, own_options, split_overrides
from headrace.launch.cluster.kubernetes import kubernetes_files
from headrace.launch.cluster.plan import bind_of, make_plan, secrets, secrets_of
from headrace.launch.cluster.shown import key_commands, plan_json, plan_text
from headrace.launch.cluster.slurm import slurm_files
from headrace.launch.cluster.systemd import systemd_files
from headrace.launch.cluster.topology import Topology
from headrace.launch.config import make_config
from headrace.launch.exits import MUST_NOT_RESTART, USAGE
from headrace.launch.placing import own_shard

LAB = {
    "config": "run.yaml",
    "name": "swing",
    "keys": "keys",
    "directory": "/srv/swing",
    "command": "/opt/headrace/bin/headrace",
    "hosts": {
        "near": {"address": "near.lab"},
        "gpu-0": {"address": "2001:db8::1", "interface": "eth0"},
        "gpu-1": {"address": "10.0.0.9", "directory": "/data/100%"},
        "sim": {"address": "10.0.0.3"},
    },
    "buffers": [{"host": "near"}],
    "ranks": [{"host": "gpu-0", "count": 2}, {"host": "gpu-1", "count": 2}],
    "actors": [{"host": "sim", "count": 2, "id": "arm"}, {"host": "gpu-1"}],
    "evaluator": "near",
}
ALONE = LAB | {"ranks": [{"host": "gpu-0"}]}


def lab(**changes):
    return load(Topology, LAB | changes)


def plan(topology):
    return {start.name: start for start in make_plan(topology)}


def parsed(words):
    """What our own command line makes of a headrace command, its config keys read too."""
    words = list(words)
    words = words[words.index("headrace") + 1 :] if "torchrun" in words[0] else words[1:]
    parser = make_parser()
    known, overrides = split_overrides(words, own_options(parser, words))
    return parser.parse_args(known), make_config({"env": {"id": "Pendulum-v1"}}, overrides)


def test_every_command_line_is_read_and_says_who_dials_whom():
    made = plan(lab())
    assert list(made) == ["buffer", "learner", "learner-gpu-1", "arm-0", "arm-1", "gpu-1-0", "evaluator"]
    for start in made.values():
        args, config = parsed(start.words)
        assert args.command == {"evaluator": "actor"}.get(start.kind, start.kind)
        assert (str(args.target), config.network.keys, config.run.name) == ("run.yaml", "keys", "swing")
        assert config.learner.ranks == 4
        if start.kind == "buffer":
            assert start.listens == (args.bind,)
        else:
            assert args.connect in start.dials
        if start.kind in ("actor", "evaluator"):
            assert (args.id, args.evaluate) == (start.name, start.kind == "evaluator")
            assert start.listens == ()


def test_only_the_buffer_and_the_first_rank_listen_and_ranks_meet_there():
    made = plan(lab())
    assert {name: start.listens for name, start in made.items() if start.listens} == {
        "buffer": ("tcp://0.0.0.0:5555",),  # of a name no address is known
        "learner": ("tcp://[2001:db8::1]:29400",),
    }
    assert made["learner-gpu-1"].dials == ("tcp://near.lab:5555", "tcp://[2001:db8::1]:29400")
    assert made["arm-0"].dials == ("tcp://near.lab:5555",)
    for node, name in enumerate(("learner", "learner-gpu-1")):
        words = dict(zip(made[name].words[1::2], made[name].words[2::2], strict=False))
        assert made[name].words[0] == "/opt/headrace/bin/torchrun"
        assert (words["--nnodes"], words["--node-rank"], words["--nproc-per-node"]) == ("2", str(node), "2")
        assert (words["--master-addr"], words["--master-port"]) == ("2001:db8::1", "29400")
    assert made["learner"].variables == (("GLOO_SOCKET_IFNAME", "eth0"), ("NCCL_SOCKET_IFNAME", "eth0"))
    assert made["learner-gpu-1"].variables == ()


@pytest.mark.parametrize(
    ("ranks", "begins"),
    [([{"host": "gpu-0"}], ("headrace", "learner")), ([{"host": "gpu-0", "count": 3}], ("torchrun", "--nproc-per-node", "3"))],
)
def test_ranks_of_one_host_meet_nobody_else(ranks, begins):
    made = plan(lab(ranks=ranks, command="headrace"))["learner"]
    assert made.words[: len(begins)] == begins
    assert made.listens == ()
    assert made.dials == ("tcp://near.lab:5555",)


def test_of_several_buffers_each_role_dials_its_own():
    buffers = [{"host": "near"}, {"host": "sim", "port": 7000}]
    actors = [{"host": "sim", "count": 8, "id": "arm"}, {"host": "gpu-1", "shard": 1}]
    made = lab(buffers=buffers, actors=actors, ranks=[{"host": "gpu-0"}])
    endpoints = ("tcp://near.lab:5555", "tcp://10.0.0.3:7000")
    starts = plan(made)
    for start in starts.values():
        args, config = parsed(start.words)
        assert config.network.shards == endpoints
        assert getattr(args, "connect", None) is None
        if start.kind == "actor":
            assert start.dials == (endpoints[own_shard(config, start.name)],)
    assert (starts["buffer"].dials, starts["buffer-1"].dials) == ((), endpoints[:1])
    assert parsed(starts["buffer-1"].words)[0].shard == 1
    assert (starts["learner"].dials, starts["evaluator"].dials) == (endpoints, endpoints[:1])
    assert starts["gpu-1-0"].dials == endpoints[1:]
    assert {starts[f"arm-{n}"].dials for n in range(8)} == {endpoints[:1], endpoints[1:]}
    assert secrets(made)["shard"] == ("shard",)
    assert starts["buffer-1"].keys == ("buffer", "shard")
    text = plan_text(made, list(starts.values()))
    secret = " ".join(f"/srv/swing/keys/{name}.secret" for name in secrets_of(list(starts.values()), "sim"))
    assert f"scp -p /srv/swing/keys/*.public {secret} 10.0.0.3:/srv/swing/keys/" in text.splitlines()
    assert "learner" not in secret
    assert "operator" not in secret
    with pytest.raises(ConfigError, match=r"actors\[1\].shard: 1, but buffers has 0 to 0; nearest valid: 0"):
        lab(actors=actors)


@pytest.mark.parametrize(
    ("address", "bind", "listens"),
    [
        ("10.0.0.1", "", "tcp://10.0.0.1:5555"),
        ("2001:db8::5", "", "tcp://[2001:db8::5]:5555"),
        ("near.lab", "", "tcp://0.0.0.0:5555"),
        ("10.0.0.1", "tcp://192.168.0.2:7000", "tcp://192.168.0.2:7000"),
    ],
)
def test_a_buffer_listens_where_it_can(address, bind, listens):
    made = lab(hosts=LAB["hosts"] | {"near": {"address": address}}, buffers=[{"host": "near", "bind": bind}])
    assert bind_of(made, made.buffers[0]) == listens


def test_every_role_has_its_key_and_each_host_only_its_own():
    made = lab()
    assert secrets(made) == {
        "learner": ("learner",),
        "operator": ("operator",),
        "actor": ("arm-0", "arm-1", "gpu-1-0"),
        "evaluator": ("evaluator",),
    }
    starts = make_plan(made)
    assert secrets_of(starts, "near") == ("buffer", "evaluator")
    assert secrets_of(starts, "sim") == ("arm-0", "arm-1")
    assert secrets_of(starts, "gpu-1") == ("learner", "gpu-1-0")
    assert [shlex.split(line)[3:] for line in key_commands(made)][2] == ["keys", "arm-0", "arm-1", "gpu-1-0"]
    assert secrets(lab(keys="")) == {}
    assert all(start.keys == () for start in make_plan(lab(keys="")))


def test_the_text_is_lines_for_a_shell_and_comments(tmp_path):
    made = lab()
    text = plan_text(made, make_plan(made))
    assert subprocess.run(["bash", "-n"], input=text, text=True, timeout=20, check=False).returncode == 0
    said = {line for line in text.splitlines() if line and not line.startswith("#")}
    for start in make_plan(made):
        assert any(line.endswith(shlex.join(start.words)) and f"cd {start.directory}" in line for line in said)
    assert "scp -p /srv/swing/keys/learner.secret /srv/swing/keys/gpu-1-0.secret 10.0.0.9:/data/100%/keys/" in said
    assert "scp -p /srv/swing/keys/learner.secret '[2001:db8::1]:/srv/swing/keys/'" in said
    assert "GLOO_SOCKET_IFNAME=eth0" in text
    here = lab(directory=".", hosts=LAB["hosts"] | {"gpu-1": {"address": "a.b"}})
    assert " && " not in plan_text(here, make_plan(here))
    lines = plan_text(here, make_plan(here)).splitlines()
    assert "scp -p keys/arm-0.secret keys/arm-1.secret 10.0.0.3:keys/" in lines
    assert [line for line in lines if "login directory" in line]
    assert "login directory" not in text
    plain = json.loads(plan_json(made, make_plan(made)))
    assert [start["words"] for start in plain["starts"]] == [list(start.words) for start in make_plan(made)]


def test_the_command_prints_and_writes(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"env": {"id": "Pendulum-v1"}}))
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(ALONE))
    words = ["launch", "plan", str(tmp_path / "cluster.yaml")]
    assert main(words) == 0
    assert "# 1. on near: buffer listens on tcp://0.0.0.0:5555" in capsys.readouterr().out
    for form, names in {
        "slurm": {"swing.sbatch", "swing-actors.sbatch"},
        "kubernetes": {"swing.yaml"},
        "systemd": {f"{s.host}/headrace-swing-{s.name}.service" for s in make_plan(load(Topology, ALONE))},
    }.items():
        assert main([*words, "--format", form, "--out", str(tmp_path / form)]) == 0
        made = {str(p.relative_to(tmp_path / form)) for p in (tmp_path / form).rglob("*") if p.is_file()}
        assert made == names
        capsys.readouterr()
        assert main([*words, "--format", form]) == 0
        assert capsys.readouterr().out.count("# ---- ") == len(names)
    assert main([*words, "--out", "x"]) == 1
    assert "nearest valid: leave it out" in capsys.readouterr().err


# --- engines ----------------------------------------------------------------------------------------------------------


def test_slurms_scripts_are_shell_scripts_with_every_command_line():
    made = lab(slurm={"options": ["--account=x"], "ranks": ["--gres=gpu:2"], "notice_s": 90})
    files = slurm_files(made, make_plan(made))
    for text in files.values():
        assert subprocess.run(["bash", "-n"], input=text, text=True, timeout=20, check=False).returncode == 0
        assert "#SBATCH --signal=B:USR1@90" in text
        assert "#SBATCH --requeue" in text
    job = files["swing.sbatch"]
    head, tail = job.split("#SBATCH hetjob\n")
    assert "--nodelist=near" in head
    assert tail.startswith("#SBATCH --nodes=2 --ntasks-per-node=1\n#SBATCH --account=x\n#SBATCH --gres=gpu:2\n")
    assert "--node-rank $SLURM_NODEID" in job
    actors = files["swing-actors.sbatch"]
    assert "#SBATCH --array=0-3" in actors
    assert "ids=(arm-0 arm-1 gpu-1-0 evaluator)" in actors
    with pytest.raises(ConfigError, match="ranks: 1 on one host and 2 on another"):
        slurm_files(uneven := lab(ranks=[{"host": "gpu-0"}, {"host": "gpu-1", "count": 2}]), make_plan(uneven))


STAND_INS = """#!/usr/bin/env bash
# srun, scancel and scontrol of one machine: steps are children, found by the job of their part
case $(basename "$0") in
  srun)
    part=$1; shift
    "$@" & echo $! > "$STEPS/${part#--het-group=}"
    trap '' TERM
    while :; do wait $!; code=$?; kill -0 $! 2>/dev/null || exit $code; done ;;
  scancel)
    for word in "$@"; do case $word in job-*) kill -TERM "$(cat "$STEPS/${word#job-}")" ;; esac; done
    echo "scancel $*" >> "$STEPS/said" ;;
  scontrol) echo "scontrol $*" >> "$STEPS/said" ;;
esac
"""
ROLE = """#!/usr/bin/env bash
# a role: says who it is; the learner dies once
echo "$1" >> "$STEPS/said"
trap 'echo "$1 ends" >> "$STEPS/said"; exit 0' TERM
if [ "$1" = learner ]; then
  [ -e "$STEPS/died" ] || { touch "$STEPS/died"; exit 137; }
  [ -z "$DONE" ] || exit 0
  kill -USR1 "$(cat "$STEPS/batch")"  # the time limit comes
fi
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("done", ["", "1"])
def test_slurms_job_restarts_a_step_and_requeues_at_its_time_limit_or_ends(tmp_path, done):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in {"srun": STAND_INS, "scancel": STAND_INS, "scontrol": STAND_INS, "headrace": ROLE}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    made = load(Topology, ALONE | {"command": str(tools / "headrace")})
    text = slurm_files(made, make_plan(made))["swing.sbatch"].replace("sleep 2", "sleep 0.1").replace("sleep 5", "sleep 0.1")
    (tmp_path / "job").write_text(f'echo $$ > "$STEPS/batch"\n{text}')
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_ID_HET_GROUP_0": "job-0", "SLURM_JOB_ID_HET_GROUP_1": "job-1"}
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "STEPS": str(tmp_path), "DONE": done, **variables}
    ended = subprocess.run(["bash", str(tmp_path / "job")], env=environment, timeout=60, capture_output=True, check=False)
    said = (tmp_path / "said").read_text().splitlines()
    assert ended.returncode == 0, ended.stderr
    assert said.count("learner") == 2
    assert said[-1] == ("scancel --quiet --name=swing-actors" if done else "scontrol requeue 7")
    assert ("learner ends" in said) == (not done)
    assert said.index("buffer ends") > (0 if done else said.index("learner ends"))


def test_systemds_units_say_when_not_to_start_again(tmp_path):
    made = lab()
    files = systemd_files(made, make_plan(made))
    assert set(files) == {f"{start.host}/headrace-swing-{start.name}.service" for start in make_plan(made)}
    for text in files.values():
        assert f"RestartPreventExitStatus={USAGE} {MUST_NOT_RESTART}\n" in text
    assert "WorkingDirectory=/data/100%%\n" in files["gpu-1/headrace-swing-gpu-1-0.service"]
    assert "Environment=GLOO_SOCKET_IFNAME=eth0\n" in files["gpu-0/headrace-swing-learner.service"]
    for changes, said in (
        ({"command": "headrace"}, "command: 'headrace' is not absolute"),
        ({"directory": "."}, "directory of"),
    ):
        with pytest.raises(ConfigError, match=said):
            systemd_files(odd := lab(**changes), make_plan(odd))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd's own check is not on this machine")
def test_systemd_finds_nothing_wrong_with_its_units(tmp_path):
    made = lab(command=sys.executable, systemd={"user": "root"}, hosts=LAB["hosts"] | {"gpu-1": {"address": "a.b"}})
    paths = []
    for name, text in systemd_files(made, make_plan(made)).items():
        paths.append(tmp_path / name.rpartition("/")[2])
        paths[-1].write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", *map(str, paths)], capture_output=True, text=True, timeout=60)
    assert [line for line in done.stderr.splitlines() if "headrace-swing" in line] == []


def manifests(topology, config="env: {id: Pendulum-v1}\n"):
    return list(yaml.safe_load_all(kubernetes_files(topology, config)["swing.yaml"]))


def test_kubernetes_manifests_hang_together():
    made = load(Topology, ALONE | {"kubernetes": {"gpus": 1}})
    parts = {(p["kind"], p["metadata"]["name"]): p for p in manifests(made)}
    assert [name for kind, name in parts if kind == "Job"] == [
        "swing-learner",
        "swing-actors-arm",
        "swing-actors-gpu-1",
        "swing-evaluator",
    ]
    service, stateful = parts["Service", "swing-buffer-0"], parts["StatefulSet", "swing-buffer-0"]
    assert service["spec"]["selector"] == stateful["spec"]["template"]["metadata"]["labels"]
    actors = parts["Job", "swing-actors-arm"]["spec"]
    pod = actors["template"]["spec"]
    assert (actors["completions"], actors["completionMode"]) == (2, "Indexed")
    words = pod["containers"][0]["command"]
    assert words[words.index("--id") + 1] == "arm-$(JOB_INDEX)"
    assert words[words.index("--connect") + 1] == "tcp://swing-buffer-0:5555"
    given = next(v["secret"]["items"] for v in pod["volumes"] if v["name"] == "given")
    assert [item["key"] for item in given] == ["arm-0.secret", "arm-1.secret"]
    for (kind, _), part in parts.items():
        if kind in ("Job", "StatefulSet"):
            pod = part["spec"]["template"]["spec"]
            mounted = {m["name"] for c in pod["containers"] for m in c["volumeMounts"]}
            claims = {c["metadata"]["name"] for c in part["spec"].get("volumeClaimTemplates", ())}
            assert mounted <= {v["name"] for v in pod["volumes"]} | claims
    with pytest.raises(ConfigError, match="ranks: on 2 hosts"):
        manifests(lab())


def test_kubernetes_manifests_are_those_of_the_published_schemas():
    validate = pytest.importorskip("kubernetes_validate", reason="the published schemas come with kubernetes-validate")
    for part in manifests(load(Topology, ALONE | {"kubernetes": {"gpus": 1}})):
        validate.validate(part, "1.30", strict=True)
