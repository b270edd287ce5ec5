"""What rclpy does with signals."""


class SignalHandlerOptions:
    NO = "no"
