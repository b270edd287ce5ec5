"""Bytes that must not change without a new protocol or format version: headers, the row layout, a weight set."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode, encode

HEADERS = [
    (
        m.Hello(
            protocol=1,
            role="actor",
            id="arm",
            incarnation=b"0123456789abcdef",
            host="host",
            pid=7,
            spec=None,
            lanes=2,
            executed=10,
            pending=3,
            robot=True,
            compression="zlib",
        ),
        "9301018ca870726f746f636f6c01a4726f6c65a56163746f72a26964a361726dab696e6361726e6174696f6ec41030313233343536373839616263646566a4686f7374a4686f7374a370696407a473706563c0a56c616e657302a865786563757465640aa770656e64696e6703a5726f626f74c3ab636f6d7072657373696f6ea47a6c6962",
    ),
    (
        m.BlockHead(stream=5, seq=1, rows=32, frames=33, priorities=True),
        "93010285a673747265616d05a373657101a4726f777320a66672616d657321aa7072696f726974696573c3",
    ),
    (
        m.Pulse(executed=10, settled=7, epoch=1, step=2, report={"a": 1}),
        "93010485a865786563757465640aa7736574746c656407a565706f636801a47374657002a67265706f727481a16101",
    ),
    (
        m.Draw(wanted=8, batch_size=256, statistics=True, mapped=True),
        "93010584a677616e74656408aa62617463685f73697a65cd0100aa73746174697374696373c3a66d6170706564c3",
    ),
    (
        m.Redraw(ticket=3, rows=2, gather=True),
        "93010c83a67469636b657403a4726f777302a6676174686572c3",
    ),
    (m.Ack(stream=5, seq=32), "93012282a673747265616d05a373657120"),
    (
        m.Welcome(
            epoch=3,
            lease_s=5.0,
            heartbeat_s=0.5,
            credit_bytes=8388608,
            fragment_bytes=262144,
            message_bytes=268435456,
            spec=None,
            streams=((5, 32),),
            pool="ab",
            directory="/p",
            nonce=9,
            kernel="k",
            mixes=2,
            compression="zlib",
        ),
        "9301208ea565706f636803a76c656173655f73cb4014000000000000ab6865617274626561745f73cb3fe0000000000000ac6372656469745f6279746573ce00800000ae667261676d656e745f6279746573ce00040000ad6d6573736167655f6279746573ce10000000a473706563c0a773747265616d7391920520a4706f6f6ca26162a96469726563746f7279a22f70a56e6f6e636509a66b65726e656ca16ba56d6978657302ab636f6d7072657373696f6ea47a6c6962",
    ),
    (
        m.State(
            learner="learner", epoch=1, step=20, granted=100, random=50, final=True, phase="training", env_steps=99, report=None
        ),
        "93012589a76c6561726e6572a76c6561726e6572a565706f636801a47374657014a76772616e74656464a672616e646f6d32a566696e616cc3a57068617365a8747261696e696e67a9656e765f737465707363a67265706f7274c0",
    ),
    (
        m.BatchHead(number=4, rows=256, batches=4, pieces=True),
        "93012688a66e756d62657204a4726f7773cd0100a76261746368657304a67469636b657400a777656967687473c2a473657473c2aa706f6f6c5f65706f636800a6706965636573c3",
    ),
    (
        m.DrawnHead(number=4, rows=256, batches=4, nonce=9, weights=True),
        "93012c88a66e756d62657204a4726f7773cd0100a76261746368657304a67469636b657400a777656967687473c3a473657473c2aa706f6f6c5f65706f636800a56e6f6e636509",
    ),
    (m.Rate(pool_epoch=3, rows=256), "93010d82aa706f6f6c5f65706f636803a4726f7773cd0100"),
    (
        m.LabelHead(number=3, kind=1, stream=5, first=33, last=64, outcome=2, episode=7),
        "93010e87a66e756d62657203a46b696e6401a673747265616d05a5666972737421a46c61737440a76f7574636f6d6502a7657069736f646507",
    ),
    (
        m.Labelled(number=3, rows=30, gone=2, reason="ahead", detail="later"),
        "93012e85a66e756d62657203a4726f77731ea4676f6e6502a6726561736f6ea56168656164a664657461696ca56c61746572",
    ),
    (m.Compressed(frames=((4096, 4), (0, 0))), "93014081a66672616d65739292cd100004920000"),
    (m.BatchPiece(column=2, offset=1 << 20), "93012d82a6636f6c756d6e02a66f6666736574ce00100000"),
    (
        m.Refused(reason="held", detail="by pid 9", retry_s=0.5),
        "93012183a6726561736f6ea468656c64a664657461696ca86279207069642039a772657472795f73cb3fe0000000000000",
    ),
]
TAGS = {
    "Hello": 1, "BlockHead": 2, "Fragment": 3, "Pulse": 4, "Draw": 5, "WeightsGet": 6, "Publish": 7, "EpisodeEnd": 8,
    "Evaluation": 9, "Query": 10, "Goodbye": 11, "Redraw": 12, "Rate": 13, "LabelHead": 14, "Welcome": 32, "Refused": 33,
    "Ack": 34, "Reject": 35, "Received": 36, "State": 37, "BatchHead": 38, "StatisticsHead": 39, "WeightsPart": 40,
    "Published": 41, "Stop": 42, "Answer": 43, "DrawnHead": 44, "BatchPiece": 45, "Labelled": 46, "Compressed": 64,
}  # fmt: skip
SPEC = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((2,), (-1.0, -2.0), (1.0, 2.0)), window=3, stack=2)
ROW = {
    "obs": 0, "next_obs": 16, "episode": 32, "stream": 40, "seq": 48, "learner": 56, "learner_step": 64, "learner_epoch": 72,
    "actor": 76, "t": 80, "task": 84, "action": 88, "rewards": 96, "action_age": 108, "steps": 112, "terminated": 114,
    "truncated": 115, "outcome": 116, "health": 117, "source": 118,
}  # fmt: skip
WEIGHTS = (
    "485257544700000084a6666f726d617401a776657273696f6e93a76c6561726e65720205a6706f6c69637981a474797065a36d6c70a774"
    "656e736f72739293a177a33c6634910393a16ea33c693890000000000000803f000000400700000000000000d52ad7c9ec30e0b8be486d"
    "d3d32f5a1582b37124d00145376e6e7813ee2be61c"
)


@pytest.mark.parametrize(("message", "golden"), HEADERS, ids=lambda x: type(x).__name__)
def test_headers_are_byte_for_byte_what_they_were(message, golden):
    assert encode(message).hex() == golden
    assert decode(bytes.fromhex(golden)) == message


def test_tags_are_never_reused():
    assert {cls.__name__: tag for tag, cls in m.MESSAGES.items()} == TAGS


def test_the_row_layout():
    dtype = SPEC.row_dtype
    assert {name: dtype.fields[name][1] for name in dtype.names} == ROW
    assert dtype.itemsize == 121
    assert SPEC.fingerprint() == "12c93801ecb4bdc7420d772abb85f55ea8a6a18aae858e18c6683a42a342b3a3"


def test_a_weight_set():
    tensors = {"w": np.arange(3, dtype=np.float32), "n": np.array(7, np.int64)}
    packed = WeightSet(Version("learner", 2, 5), {"type": "mlp"}, tensors).pack()
    assert packed.hex() == WEIGHTS
    assert WeightSet.unpack(packed).version == Version("learner", 2, 5)
