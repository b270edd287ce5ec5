"""Plain messages."""
