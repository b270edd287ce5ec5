"""A plan as manifests of Kubernetes: a StatefulSet and a Service for each buffer, Jobs for all who only dial.

Pods find a buffer by its Service, so addresses and directories of the topology's hosts do not count there, only the numbers of
roles. The pods' own signal, SIGTERM with a period of grace, is when a learner writes its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from headrace.common.errors import ConfigError
from headrace.common.wire.key_files import SECRET
from headrace.launch.cluster.plan import ACTOR, EVALUATOR, Start, make_plan
from headrace.launch.cluster.topology import ActorPlace, HostConfig, Topology
from headrace.launch.exits import MUST_NOT_RESTART, USAGE
from headrace.launch.supervision import LEARNER

WORK, KEYS, GIVEN = "/work", "/keys", "/given"  # working directory, keys with the modes they need, and as a Secret has them
CONFIG = "/config"
INDEX = "JOB_INDEX"
GRACE_S = {LEARNER: 120}
DEATHS = 20  # of one Job; then it is for people
NOTE = """# {name}, made by `headrace launch plan`.
#   kubectl create secret generic {name}-keys --from-file={keys}     # once, where `headrace keys new` made them
#   kubectl apply -f {name}.yaml
#   kubectl delete -f {name}.yaml                                    # when it is done: a buffer stays until then
"""


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as people write them."""


_Dumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)


def kubernetes_files(topology: Topology, config: str) -> dict[str, str]:
    """``NAME.yaml``.

    Args:
        topology: of the run; its hosts only tell roles apart.
        config: text of the run's config.

    Raises:
        ConfigError: ranks on several hosts: here one pod has them all.
    """
    if len(topology.ranks) > 1:
        raise ConfigError(
            f"ranks: on {len(topology.ranks)} hosts, but here one pod has all ranks of a learner; nearest valid: one host with"
            f" {topology.rank_count}"
        )
    inside = _inside(topology)
    starts = make_plan(inside)
    parts: list[dict[str, Any]] = [_config_map(inside, config)]
    for number, start in enumerate(s for s in starts if s.kind == "buffer"):
        parts += _buffer(inside, start, inside.buffers[number].port)
    parts += [_volume(inside, LEARNER), _job(inside, _first(starts, LEARNER), LEARNER, volume=f"{inside.name}-{LEARNER}")]
    if inside.actors:
        parts += [_actors(inside, starts, place) for place in inside.actors]
    if inside.evaluator:
        parts.append(_job(inside, _first(starts, EVALUATOR), EVALUATOR))
    note = NOTE.format(name=topology.name, keys=topology.keys) if topology.keys else ""
    return {f"{topology.name}.yaml": note + yaml.dump_all(parts, Dumper=_Dumper, sort_keys=False, width=120)}


def _inside(topology: Topology) -> Topology:
    """The topology as pods see it: a Service's name is where a buffer is dialled."""
    hosts = {name: replace(host, directory="", interface="") for name, host in topology.hosts.items()}
    buffers = []
    for number, place in enumerate(topology.buffers):
        service = f"{topology.name}-buffer-{number}"
        hosts[service] = HostConfig(service)
        buffers.append(replace(place, host=service, bind=""))
    keys = KEYS if topology.keys else ""
    return replace(topology, hosts=hosts, buffers=tuple(buffers), keys=keys, directory=WORK, command="headrace")


def _first(starts: Sequence[Start], kind: str) -> Start:
    return next(start for start in starts if start.kind == kind)


def _named(topology: Topology, part: str) -> dict[str, Any]:
    return {"name": f"{topology.name}-{part}", "labels": _labels(topology, part)}


def _labels(topology: Topology, part: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "headrace", "app.kubernetes.io/instance": topology.name, "headrace/part": part}


def _config_map(topology: Topology, config: str) -> dict[str, Any]:
    data = {topology.config: config}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _named(topology, "config"), "data": data}


def _buffer(topology: Topology, start: Start, port: int) -> list[dict[str, Any]]:
    part = start.host.removeprefix(f"{topology.name}-")
    ports = [{"name": "headrace", "port": port, "targetPort": port}]
    selector = _labels(topology, part)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _named(topology, part),
        "spec": {"selector": selector, "ports": ports},
    }
    pod = _pod(topology, start, part, volume=WORK)
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": port}]
    pod["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": port}, "periodSeconds": 5}
    claim = {"metadata": {"name": "work"}, "spec": _claim(topology)}
    stateful = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _named(topology, part),
        "spec": {
            "serviceName": start.host,
            "replicas": 1,
            "selector": {"matchLabels": selector},
            "template": pod,
            "volumeClaimTemplates": [claim],
        },
    }
    return [service, stateful]


def _volume(topology: Topology, part: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _named(topology, part),
        "spec": _claim(topology),
    }


def _claim(topology: Topology) -> dict[str, Any]:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": topology.kubernetes.storage}}}


def _actors(topology: Topology, starts: Sequence[Start], place: ActorPlace) -> dict[str, Any]:
    """One Job for the actors of a host: each pod's index is its actor's number."""
    first = next(start for start in starts if start.kind == ACTOR and start.name == place.ids[0])
    stem = place.ids[0].removesuffix("0")
    words = tuple(f"{stem}$({INDEX})" if word == first.name else word for word in first.words)
    indexed = replace(first, words=words, keys=place.ids if topology.keys else ())
    job = _job(topology, indexed, f"actors-{stem.rstrip('-').lower()}")
    job["spec"] |= {"completionMode": "Indexed", "completions": place.count, "parallelism": place.count}
    path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    job["spec"]["template"]["spec"]["containers"][0]["env"].append(
        {"name": INDEX, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    )
    return job


def _job(topology: Topology, start: Start, part: str, volume: str = "") -> dict[str, Any]:
    pod = _pod(topology, start, part, volume=volume)
    if start.kind == LEARNER and topology.kubernetes.gpus:
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": topology.kubernetes.gpus}}
    pod["spec"]["restartPolicy"] = "Never"
    codes = {"containerName": "role", "operator": "In", "values": [USAGE, MUST_NOT_RESTART]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _named(topology, part),
        "spec": {
            "backoffLimit": DEATHS,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]},
            "template": pod,
        },
    }


def _pod(topology: Topology, start: Start, part: str, volume: str) -> dict[str, Any]:
    """A pod of one role, in ``volume``: a claim, or where that is mounted, or none for one that keeps nothing."""
    mounts = [{"name": "work", "mountPath": WORK}, {"name": "config", "mountPath": CONFIG}]
    volumes: list[dict[str, Any]] = [{"name": "config", "configMap": {"name": f"{topology.name}-config"}}]
    if volume != WORK:
        how = {"persistentVolumeClaim": {"claimName": volume}} if volume else {"emptyDir": {}}
        volumes.append({"name": "work", **how})
    words = [f"{CONFIG}/{word}" if word == topology.config else word for word in start.words]
    container: dict[str, Any] = {
        "name": "role",
        "image": topology.kubernetes.image,
        "command": words,
        "workingDir": WORK,
        "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}],
        "volumeMounts": mounts,
    }
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": GRACE_S.get(start.kind, 30), "containers": [container]}
    if start.keys:
        spec["initContainers"] = [_keys(topology)]
        mounts.append({"name": "keys", "mountPath": KEYS})
        secret: dict[str, Any] = {"secretName": f"{topology.name}-keys", "defaultMode": 0o400}
        if start.kind != "buffer":  # which knows everybody's public half
            secret["items"] = [{"key": f"{name}{SECRET}", "path": f"{name}{SECRET}"} for name in start.keys]
        volumes += [{"name": "given", "secret": secret}, {"name": "keys", "emptyDir": {"medium": "Memory"}}]
    spec["volumes"] = volumes
    return {"metadata": {"labels": _labels(topology, part)}, "spec": spec}


def _keys(topology: Topology) -> dict[str, Any]:
    """A Secret's files lie behind links in a directory that all may write, which headrace refuses; so they are copied."""
    copy = f"chmod 700 {KEYS} && cp -L {GIVEN}/* {KEYS}/ && chmod 600 {KEYS}/*"
    given = [{"name": "given", "mountPath": GIVEN, "readOnly": True}, {"name": "keys", "mountPath": KEYS}]
    return {
        "name": "keys",
        "image": topology.kubernetes.image,
        "command": ["sh", "-c", copy],
        "volumeMounts": given,
    }
