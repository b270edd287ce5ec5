"""A stub of draccus: choices by name, and their decoding."""

from dataclasses import fields


class ChoiceRegistry:
    """Names -> classes of configs."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "_choices"):
            cls._choices = {}

    @classmethod
    def register_subclass(cls, name):
        def register(choice):
            cls._choices[name] = choice
            return choice

        return register

    @classmethod
    def get_known_choices(cls):
        return cls._choices


def decode(config, words):
    """The config that ``words`` name."""
    words = dict(words)
    found = config.get_known_choices()[words.pop("type")]
    unknown = set(words) - {field.name for field in fields(found)}
    if unknown:
        raise ValueError(f"The fields {sorted(unknown)} are not valid for {found.__name__}")
    return found(**words)
