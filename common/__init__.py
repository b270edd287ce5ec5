"""What every role shares: errors, config, specs, blocks, weights, clock and the wire. Needs numpy, msgpack and pyzmq."""
