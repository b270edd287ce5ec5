"""A stub of rclpy: contexts, nodes and topics within this process."""


class Node:
    def __init__(self, name, context):
        self.name, self.context, self.heard_by, self.destroyed = name, context, {}, False
        self.published = []

    def create_subscription(self, kind, topic, callback, qos):
        assert qos == "sensor data"
        self.heard_by[topic] = callback

    def create_publisher(self, kind, topic, depth):
        self.publishes = topic
        return self

    def publish(self, message):
        self.published.append(list(message.data))

    def destroy_node(self):
        self.destroyed = True


def init(context, signal_handler_options):
    assert signal_handler_options == "no"
    context.running = True


def create_node(name, context):
    assert context.running
    context.node = Node(name, context)
    return context.node
