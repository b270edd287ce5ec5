"""An executor that hands over what the test has put into `node.incoming`."""

import queue


class SingleThreadedExecutor:
    def __init__(self, context):
        self.context = context

    def add_node(self, node):
        self.node, node.incoming = node, queue.Queue()
        for topic, message in PRESET:
            node.heard_by[topic](message)

    def spin(self):
        while (item := self.node.incoming.get()) is not None:
            topic, message = item
            if topic in self.node.heard_by:
                self.node.heard_by[topic](message)
            self.node.incoming.task_done()

    def shutdown(self):
        self.node.incoming.put(None)


PRESET = []  # what comes as soon as a node listens
