"""The learner: models, SAC, feed, checkpoints and metrics. Torch lives here, except in config and sinks."""
