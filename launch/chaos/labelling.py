"""Labels: whether every row that the pool has of a job has the outcome of its own episode, by row identity (rule 8)."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.launch.chaos.evidence import Client, Evidence
from headrace.launch.chaos.streams import Deeds, Streams, named, who
from headrace.launch.chaos.verdict import Verdict


def judge(evidence: Evidence, actors: Sequence[Client], deeds: Deeds, streams: Streams, verdict: Verdict) -> None:
    """Blame another outcome than that of the env, and none where the label was answered or its process ended in order."""
    for client in actors:
        told = {step.episode: step.outcome for step in client.steps if step.outcome}
        for deed in deeds[client.process]:
            row, expected = deed.row, told.get(deed.step.episode, 0)
            if row is None:
                continue
            verdict.trials["mislabelled"] += bool(row.outcome)
            if row.outcome not in (0, expected):
                verdict.blame("mislabelled", f"{named(row)} has outcome {row.outcome}, its episode had {expected}")
            elif row.outcome != expected and row.id >= evidence.tail and client.ended == 0:
                verdict.blame("mislabelled", f"{named(row)} has no outcome, and {who(client)} left nothing behind")
        _judge_answered(client, evidence, streams, verdict)


def _judge_answered(client: Client, evidence: Evidence, streams: Streams, verdict: Verdict) -> None:
    for said in client.said:
        stream = streams.get((client.id, said.stream))
        rows = {} if stream is None else stream.rows
        for seq in range(said.first, said.last + 1):
            row = rows.get(seq)
            if row is not None and row.id >= evidence.tail and row.episode == said.episode and row.outcome != said.outcome:
                verdict.blame("mislabelled", f"{named(row)} has outcome {row.outcome}, answered was {said.outcome}")
