"""The spool: blocks that wait for the buffer, and labels, lie in files on the robot's disk, and outlive their process."""

from __future__ import annotations

import itertools
import json
import logging
import struct
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headrace.actor.config import ActorConfig
from headrace.actor.label_box import LABEL_BYTES, MOST_LABELS
from headrace.actor.label_file import LabelFile
from headrace.actor.outbox import Outbox
from headrace.actor.ring_file import MAX_RECORD_BYTES, Place, RingFile
from headrace.actor.store import Item, Memory, Recovered, StreamName
from headrace.common.block import Block
from headrace.common.errors import ConfigError, SpecError, SpoolError, WireError
from headrace.common.label import ANY_EPISODE
from headrace.common.specs import TransitionSpec
from headrace.common.wire.codec import block_parts, decode, parse_block
from headrace.common.wire.messages import BlockHead

LOG = logging.getLogger(__name__)
MAX_NAMED = 8  # differences in one text
_LENGTH = struct.Struct("<I")  # of a record's first part
_HEAD_BYTES = 256  # more than that part ever takes
_LABELS_SIZE = LABEL_BYTES + 256 * MOST_LABELS  # so that the box is full before its file is


def open_outbox(config: ActorConfig, identity: str, spec: TransitionSpec) -> Outbox:
    """The outbox that an actor's config asks for: in memory, or with ``spool`` in a file that may hold rows already.

    Raises:
        SpoolError: the file cannot be made, is damaged, or held by another process.
        SpecError: it holds rows of another spec.
    """
    if not config.spool:
        return Outbox(Memory(config.outbox_bytes), config.chosen_when_full)
    return Outbox(Spool(Path(config.spool), identity, config.spool_bytes, spec), config.chosen_when_full)


class Spool:
    """A store of :class:`Outbox` in a ring file. A block is on disk before it counts as taken.

    Attributes:
        labels: those about its rows, in a file of their own.

    Args:
        directory: where the files ``<actor>.spool`` and ``<actor>.labels`` are, or are made.
        identity: the actor's name.
        size: most bytes of the first; of one that holds rows the size stays as it is.
        spec: of the rows.
    """

    def __init__(self, directory: Path, identity: str, size: int, spec: TransitionSpec) -> None:
        self._spec = spec
        self._next_seq, self._next_episode = 1, 0
        path = directory / f"{quote(identity, safe='')}.spool"
        text = json.dumps({"actor": identity, "spec": spec.to_dict()}).encode()
        if not path.exists():
            RingFile.make(path, size, text)
        self._file = RingFile(path)
        try:
            self._check_spec()
            self.labels = LabelFile(path.with_suffix(".labels"), _LABELS_SIZE, spec)
            try:
                self._recovered = self._recover()
                if self._file.text != text or self._file.size != size:
                    self._remake(size, text)
            except BaseException:
                self.labels.close()
                raise
        except BaseException:
            self._file.close()
            raise
        waiting = sum(item.steps for item in self._recovered.items)
        if waiting:
            LOG.info("%s: %d steps of an earlier process wait for the buffer", path, waiting)

    outlives = True

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def name(self) -> StreamName:
        """As the file has it."""
        return self._name

    def rename(self, name: StreamName) -> None:
        """Have it on disk before anything is sent under it."""
        self._name = name
        self._note()
        self._file.save()

    def recovered(self) -> Recovered:
        """What was in the file when it was opened."""
        return self._recovered

    def has_room(self, held: int, nbytes: int) -> bool:
        """Whether the ring has.

        Raises:
            ConfigError: even an empty one would not.
        """
        need, most = nbytes + _HEAD_BYTES, min(MAX_RECORD_BYTES, self._file.size // 2)
        if need > most:
            raise ConfigError(
                f"actor.spool_bytes: a block of {nbytes} bytes does not go into {self.path}, which takes {most};"
                " lower actor.block_rows, or give an empty spool more"
            )
        return need <= self._file.free_bytes

    def put(self, first: int, steps: int, block: Block) -> Place:
        """Write a block; it is on disk when this returns.

        Raises:
            SpoolError: the disk does not take it.
        """
        head, *frames = block_parts(BlockHead(0, first, block.n_rows, block.n_frames), block, self._spec)
        place = self._file.append([_LENGTH.pack(len(head)), head, *frames])
        self._next_seq = first + block.n_rows
        self._next_episode = max(self._next_episode, int(block.rows["episode"].max()) + 1)
        self._note()
        return place

    def get(self, place: Place) -> Block | None:
        """Read a block; none when the file was damaged since."""
        body = self._file.read(place)
        found = None if body is None else self._parse(body)
        if found is None:
            LOG.error("%s: a record is damaged, and its rows are lost", self.path)
            return None
        return found[1]

    def free(self, gone: Place, oldest: Place | None) -> None:
        """Its space may be used again."""
        self._file.free(gone.end if oldest is None else oldest.position)

    def close(self) -> None:
        """Let the next process have the files."""
        try:
            self._file.close()
        finally:
            self.labels.close()

    def _recover(self) -> Recovered:
        note = _parse_note(self._file)
        self._name = StreamName(note["stream"], note["base"], note["pool"])
        self._next_seq, self._next_episode = note["next_seq"], note["next_episode"]
        items: list[Item] = []
        for place, body in self._file.recover():
            parsed = self._parse(body)
            if parsed is None:
                raise SpoolError(f"{self.path}: it holds records that are not of its spec; move it away to begin anew")
            first, block = parsed
            rows = block.rows["episode"]
            self._next_seq = max(self._next_seq, first + block.n_rows)
            self._next_episode = max(self._next_episode, int(rows.max()) + 1)
            steps = self._spec.fresh_steps(block.rows)
            episodes = int(rows[0]), int(rows[-1])
            items.append(Item(first, first + block.n_rows - 1, steps, block.nbytes, episodes, (place,)))
        for label, _ in self.labels.left:  # the numbers that they name are given, whatever became of those rows
            self._next_seq = max(self._next_seq, label.last + 1)
            if label.episode != ANY_EPISODE:
                self._next_episode = max(self._next_episode, label.episode + 1)
        # Rows that are missing where records lie side by side were dropped.
        gaps = [(a, b) for a, b in itertools.pairwise(items) if b.places[0].position != a.places[0].end]
        damaged = sum(b.first - a.last - 1 for a, b in gaps)
        if damaged:
            LOG.error("%s: %d rows of an earlier process were damaged and are lost", self.path, damaged)
        self._note()
        return Recovered(items, self._next_seq, self._next_episode, damaged)

    def _check_spec(self) -> None:
        theirs = TransitionSpec.from_dict(json.loads(self._file.text)["spec"])
        different = theirs.differences(self._spec)
        if different and not self._file.is_empty():
            raise SpecError(
                f"{self.path}: holds rows of another spec (the file's first): {'; '.join(different[:MAX_NAMED])}; send them"
                " with the config that they were made with, or move the file away"
            )

    def _remake(self, size: int, text: bytes) -> None:
        """Make the file as configured, if nothing is in it."""
        path, note = self.path, self._file.note
        if self._recovered.items:
            LOG.warning("%s: keeps its %d bytes until it is empty; actor.spool_bytes is %d", path, self._file.size, size)
            return
        self._file.close()
        RingFile.make(path, size, text, note)
        self._file = RingFile(path)

    def _parse(self, body: bytes) -> tuple[int, Block] | None:
        """First seq and block of a record; none when it is no block of the spec."""
        view = memoryview(body)
        try:
            start = _LENGTH.size + _LENGTH.unpack_from(view)[0]
            head = decode(view[_LENGTH.size : start])
            if not isinstance(head, BlockHead):
                return None
            frames = []
            for size in self._sizes(head):
                frames.append(view[start : start + size])
                start += size
            return (head.seq, parse_block(head, frames, self._spec)) if start == len(view) else None
        except (WireError, struct.error):
            return None

    def _sizes(self, head: BlockHead) -> list[int]:
        obs = [head.frames * o.nbytes for o in self._spec.obs]
        return [head.rows * self._spec.row_dtype.itemsize, *obs, *([4 * head.rows] if head.priorities else [])]

    def _note(self) -> None:
        note = {"stream": self._name.stream, "base": self._name.base, "pool": self._name.pool}
        self._file.note = json.dumps({**note, "next_seq": self._next_seq, "next_episode": self._next_episode}).encode()


def _parse_note(file: RingFile) -> dict[str, Any]:
    note: dict[str, Any] = {"stream": 0, "base": 0, "pool": "", "next_seq": 1, "next_episode": 0}
    return {**note, **json.loads(file.note or b"{}")}
