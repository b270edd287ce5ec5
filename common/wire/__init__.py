"""The wire: messages, codec, session and sockets."""
