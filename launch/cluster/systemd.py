"""A plan as systemd units: one a process, in a directory for each host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from headrace.common.errors import ConfigError
from headrace.launch.cluster.plan import Start
from headrace.launch.cluster.topology import Topology
from headrace.launch.exits import MUST_NOT_RESTART, USAGE
from headrace.launch.supervision import LEARNER

STOP_S = {LEARNER: 120}  # until its last checkpoint is written; others say goodbye
PLAIN = re.compile(r"[\w@+=:,./\[\]-]+", re.ASCII)
UNIT = """# {start.name} of {topology.name}, made by `headrace launch plan`. On {start.host}: copy to /etc/systemd/system, then
#   systemctl daemon-reload && systemctl enable --now {unit}
[Unit]
Description=headrace {start.kind} {start.name} of {topology.name}
Wants=network-online.target
After=network-online.target
# It waits for those it dials by itself; what fails ten times in five minutes is for people.
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=exec
User={topology.systemd.user}
WorkingDirectory={directory}
{environment}ExecStart={command}
# Ended by a fault: once more. {usage}: the command line cannot be read; {permanent}: it would fail in the same way again.
Restart=on-failure
RestartSec=2
RestartPreventExitStatus={usage} {permanent}
TimeoutStopSec={stop_s}
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
"""


def systemd_files(topology: Topology, starts: Sequence[Start]) -> dict[str, str]:
    """The units by ``HOST/headrace-NAME.service``.

    Raises:
        ConfigError: a path is not absolute, which systemd needs.
    """
    for key, path in (("command", topology.command), *((f"directory of {s.host}", s.directory) for s in starts)):
        if not PurePosixPath(path).is_absolute():
            raise ConfigError(f"{key}: {path!r} is not absolute, and systemd has no working directory of its own to find it in")
    return {f"{start.host}/{_unit(topology, start)}": _text(topology, start) for start in starts}


def _unit(topology: Topology, start: Start) -> str:
    return f"headrace-{topology.name}-{start.name}.service"


def _text(topology: Topology, start: Start) -> str:
    variables = (("PYTHONUNBUFFERED", "1"), *start.variables)
    return UNIT.format(
        topology=topology,
        start=start,
        unit=_unit(topology, start),
        directory=start.directory.replace("%", "%%"),
        environment="".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in variables),
        command=" ".join(map(_quoted, start.words)),
        usage=USAGE,
        permanent=MUST_NOT_RESTART,
        stop_s=STOP_S.get(start.kind, 20),
    )


def _quoted(word: str) -> str:
    """One word of a unit: its own quotes, and neither specifiers nor variables."""
    word = word.replace("%", "%%").replace("$", "$$")
    return word if PLAIN.fullmatch(word) else '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
