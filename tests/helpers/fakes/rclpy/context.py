"""Contexts; the last one is `made`."""

made = []


class Context:
    def __init__(self):
        self.running = False
        made.append(self)

    def try_shutdown(self):
        self.running = False
