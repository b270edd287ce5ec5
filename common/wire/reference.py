"""The table of all messages in Markdown, made from their declarations, as ``docs/wire.md`` holds it.

    python -m headrace.common.wire.reference

prints it.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from headrace.common.wire.messages import MESSAGES, Message

BEGIN, END = "<!-- messages: begin -->", "<!-- messages: end -->"


def table() -> str:
    """All messages by tag: who sends them, how many frames follow, and each field with its bounds."""
    return "\n\n".join(_message(MESSAGES[tag]) for tag in sorted(MESSAGES))


def _message(kind: type[Message]) -> str:
    frames = "as the header and the spec say" if kind.FRAMES is None else str(kind.FRAMES)
    about = " ".join((inspect.getdoc(kind) or "").replace(":class:", "").replace("``", "`").split())
    head = (
        f"### {kind.TAG} `{kind.__name__}`\n\nFrom: {', '.join(kind.SENDERS)}. Frames behind the header: {frames}.\n\n{about}"
    )
    rows = [f"| `{f.name}` | {f.metadata['kind']} | {_default(f)} |" for f in dataclasses.fields(kind)]
    return "\n".join([head, "", "| field | type and bounds | default |", "|---|---|---|", *rows])


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "required"
    value = {"": "empty", (): "empty", None: "nil"}.get(field.default, field.default)
    return "2^64 - 1" if value == (1 << 64) - 1 else str(value).lower()


if __name__ == "__main__":
    print(table())
