"""The keys of a run's config as people see them: in ``--help`` and in hints."""

from __future__ import annotations

import textwrap

from headrace.common.config import describe
from headrace.launch.config import RunConfig

WIDTH = 110


def all_keys() -> list[str]:
    """Every dotted key."""
    return [doc.key for doc in describe(RunConfig)]


def keys_text() -> str:
    """Every key with its type, default, unit and meaning, one paragraph a section."""
    lines = ["config keys, in the YAML file or as --KEY VALUE (* = --resume may change it):"]
    section = ""
    for doc in describe(RunConfig):
        head = doc.key.rpartition(".")[0]
        if head != section:
            section = head
            lines.append("")
        unit = f" {doc.unit}" if doc.unit else ""
        star = " *" if doc.resume else ""
        lines.append(f"  --{doc.key}{star}")
        about = f"{doc.help} [{doc.type}{unit}; default {doc.default}]"
        lines += textwrap.wrap(about, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines) + "\n"
