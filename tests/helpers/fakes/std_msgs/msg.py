"""Float64MultiArray."""

from dataclasses import dataclass, field


@dataclass
class Float64MultiArray:
    data: list = field(default_factory=list)
