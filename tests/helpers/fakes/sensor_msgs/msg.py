"""JointState and Image."""

from dataclasses import dataclass, field


@dataclass
class JointState:
    name: list = field(default_factory=list)
    position: list = field(default_factory=list)
    velocity: list = field(default_factory=list)


@dataclass
class Image:
    height: int
    width: int
    encoding: str
    step: int
    data: bytes
