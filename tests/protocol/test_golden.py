"""Bytes that must not change without a new protocol or format version: docs/golden.json, which other languages read too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headrace.actor import noise
from headrace.common.block import Block
from headrace.common.label import Kind, Label
from headrace.common.specs import TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import block_parts, decode, encode, label_parts, parse_block, parse_label
from headrace.common.wire.fragments import Joiner, split
from headrace.common.wire.reference import BEGIN, END, table

DOCS = Path(__file__).resolve().parents[2] / "docs"
GOLDEN = json.loads((DOCS / "golden.json").read_text())
SPEC = TransitionSpec.from_dict(GOLDEN["spec"])
TAGS = {
    "Hello": 1, "BlockHead": 2, "Fragment": 3, "Pulse": 4, "Draw": 5, "WeightsGet": 6, "Publish": 7, "EpisodeEnd": 8,
    "Evaluation": 9, "Query": 10, "Goodbye": 11, "Redraw": 12, "Rate": 13, "LabelHead": 14, "Change": 15, "Ask": 16,
    "Welcome": 32, "Refused": 33, "Ack": 34, "Reject": 35, "Received": 36, "State": 37, "BatchHead": 38, "StatisticsHead": 39,
    "WeightsPart": 40, "Published": 41, "Stop": 42, "Answer": 43, "DrawnHead": 44, "BatchPiece": 45, "Labelled": 46,
    "Declined": 47, "Word": 48, "Decision": 49, "Compressed": 64, "Claim": 17, "Holdings": 18, "Granted": 50,
}  # fmt: skip


def value(told):
    if isinstance(told, dict) and told.keys() == {"bytes"}:
        return bytes.fromhex(told["bytes"])
    return tuple(tuple(pair) for pair in told) if isinstance(told, list) else told


def hexed(parts):
    return [bytes(part).hex() for part in parts]


@pytest.mark.parametrize("golden", GOLDEN["messages"], ids=lambda golden: golden["kind"])
def test_headers_are_byte_for_byte_what_they_were(golden):
    kind = m.MESSAGES[TAGS[golden["kind"]]]
    message = kind(**{name: value(told) for name, told in golden["fields"].items()})
    assert encode(message).hex() == golden["header"]
    assert decode(bytes.fromhex(golden["header"])) == message


def test_every_kind_of_message_has_its_golden_bytes_and_a_tag_that_is_never_reused():
    assert {cls.__name__: tag for tag, cls in m.MESSAGES.items()} == TAGS
    assert sorted(golden["kind"] for golden in GOLDEN["messages"]) == sorted(TAGS)
    assert GOLDEN["protocol"] == m.PROTOCOL


def test_the_row_layout():
    dtype = SPEC.row_dtype
    assert {name: dtype.fields[name][1] for name in dtype.names} == GOLDEN["row"]["offsets"]
    assert dtype.itemsize == GOLDEN["row"]["bytes"] == 121
    assert SPEC.fingerprint() == GOLDEN["fingerprint"]


def test_a_block_whole_and_in_fragments():
    golden = GOLDEN["block"]
    rows = np.zeros(2, SPEC.row_dtype)
    for name, column in golden["rows"].items():
        rows[name] = column
    frames = {"obs": np.array(golden["frames"]["obs"], "<f4")}
    made = Block(rows, frames, np.array(golden["priorities"], "<f4"))
    made.check(SPEC)
    parts = block_parts(m.BlockHead(5, 1, 2, 5), made, SPEC)
    assert hexed(parts) == golden["parts"]
    assert [hexed(piece) for piece in split(parts, 200)] == GOLDEN["fragments"]
    joiner = Joiner(1 << 20)
    joined = [joiner.add(decode(bytes.fromhex(head)), bytes.fromhex(data)) for head, data in GOLDEN["fragments"]][-1]
    assert parse_block(decode(joined[0]), joined[1:], SPEC).rows.tobytes() == rows.tobytes()


def test_a_label():
    golden = GOLDEN["label"]
    rewards = np.array(golden["rewards"], "<f4")
    label = Label(Kind(golden["kind"]), golden["stream"], golden["first"], golden["last"], 0, rewards, golden["episode"])
    assert hexed(label_parts(golden["number"], label)) == golden["parts"]
    head, frame = map(bytes.fromhex, golden["parts"])
    np.testing.assert_array_equal(parse_label(decode(head), [frame], SPEC).rewards, rewards)


def test_the_state_of_a_generator():
    golden = GOLDEN["noise"]
    rng = np.random.default_rng(golden["seed"])
    rng.integers(golden["bits"], dtype=np.uint32)  # leaves half a word
    rng.standard_normal(golden["normals"])
    assert noise.pack(rng).hex() == golden["bytes"]
    restored = noise.unpack(bytes.fromhex(golden["bytes"]))
    assert restored.standard_normal(2).tolist() == golden["next"]
    assert restored.integers(golden["bits"], dtype=np.uint32) == rng.integers(golden["bits"], dtype=np.uint32)


def test_a_weight_set():
    golden = GOLDEN["weights"]
    tensors = {"w": np.array(golden["tensors"]["w"], np.float32), "n": np.array(golden["tensors"]["n"], np.int64)}
    version = Version(*golden["version"])
    packed = WeightSet(version, golden["policy"], tensors).pack()
    assert packed.hex() == golden["blob"]
    assert WeightSet.unpack(packed).version == version


def test_the_page_holds_the_table_of_messages_as_they_are_declared():
    page = (DOCS / "wire.md").read_text()
    assert page.split(BEGIN)[1].split(END)[0].strip() == table()
