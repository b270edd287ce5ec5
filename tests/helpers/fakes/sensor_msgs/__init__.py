"""Messages of sensors."""
