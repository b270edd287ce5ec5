"""What engines that place processes are told beside the topology: words that headrace only hands on."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.common.config import option


@dataclass(frozen=True)
class SlurmConfig:
    """Words of ``sbatch``, such as ``--partition=cpu`` or ``--time=12:00:00``."""

    options: tuple[str, ...] = option((), help="for every job")
    buffers: tuple[str, ...] = option((), help="for the buffers' part of the job")
    ranks: tuple[str, ...] = option((), help="for the learner's part of the job, such as --gres=gpu:4")
    actors: tuple[str, ...] = option((), help="for the array of actors")
    notice_s: int = option(
        120, help="so long before the time limit the learner writes its last checkpoint", unit="s", low=10, high=65535
    )


@dataclass(frozen=True)
class KubernetesConfig:
    """What manifests need beside the topology."""

    image: str = option("headrace:latest", help="container image with headrace, the env and, for the learner, torch")
    storage: str = option("20Gi", help="size of the volume of each buffer, and of the learner")
    gpus: int = option(0, help="GPUs of the learner's pod (nvidia.com/gpu)", low=0, high=64)


@dataclass(frozen=True)
class SystemdConfig:
    """What units need beside the topology."""

    user: str = option("headrace", help="who runs the roles; owns the working directory and the secrets")
