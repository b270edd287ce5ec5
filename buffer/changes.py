"""Changes of a running run that people ask for: what becomes of each request, who is told a word, and the answer."""

from __future__ import annotations

import json
from collections.abc import Collection

from headrace.buffer.client import Client
from headrace.buffer.live import Live
from headrace.common.errors import ConfigError, WireError
from headrace.common.label import VERDICTS
from headrace.common.wire import messages as m
from headrace.common.wire.answers import Out
from headrace.common.wire.codec import encode

SHOWN = 8
OPERATOR, EVERYBODY = "the operator", "*"


class Changes:
    """Carries requests out.

    Args:
        live: what can change.
    """

    def __init__(self, live: Live) -> None:
        self.live = live

    def change(self, client: Client, change: m.Change, clients: Collection[Client]) -> list[Out]:
        """Do what is asked, once for each number of a client.

        Raises:
            WireError: it is no request that this client may make.
        """
        observer = client.session.role == "observer"
        if change.what not in (("pause", "resume", "label", "set") if observer else ("pause", "resume")):
            raise WireError("change", f"{change.what!r} is no change that an {client.session.role} asks for")
        if observer and 0 < change.number == client.changed[0]:
            return [(client.session.peer, [encode(m.Answer(change.what)), client.changed[1]])]
        out: list[Out] = []
        answer: dict[str, str] = {}
        try:
            out = self._do(change, client, clients)
        except ConfigError as error:
            answer = {"refused": str(error)}
        if not observer:
            return out
        if change.what == "resume" and self.live.paused_by:
            who = ", ".join(self.live.paused_by)
            answer["warning"] = f"still paused by {who}: by their own key, or headrace resume --everybody"
        elif self.live.not_written:
            answer["warning"] = f"a restart of the buffer undoes it: not written: {self.live.not_written}"
        client.changed = change.number, json.dumps(answer).encode()
        return [*out, (client.session.peer, [encode(m.Answer(change.what)), client.changed[1]])]

    def _do(self, change: m.Change, client: Client, clients: Collection[Client]) -> list[Out]:
        observer = client.session.role == "observer"
        who = OPERATOR if observer else client.session.name
        if change.what == "set":
            self.live.set(change.target, change.value)
        elif change.what == "label":
            return self._label(change, clients)
        elif change.what == "pause":
            self.live.pause(who)
        else:
            self.live.resume("" if observer and change.target == EVERYBODY else who)
        return []

    def _label(self, change: m.Change, clients: Collection[Client]) -> list[Out]:
        if not isinstance(change.value, str) or change.value not in VERDICTS:
            raise ConfigError(f"{change.value!r} is none of {', '.join(VERDICTS)}")
        here = {c.session.id: c for c in clients if c.session.role == "actor"}
        if change.target not in here:
            known = ", ".join(sorted(here)[:SHOWN]) or "none"
            raise ConfigError(f"actor {change.target!r} is not connected; there are: {known}")
        return [(here[change.target].session.peer, [encode(m.Word(change.value))])]
