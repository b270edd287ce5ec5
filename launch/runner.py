"""x"""


def train(config: int) -> int:
    """T."""
    return config


class TrainResult:
    """T."""
