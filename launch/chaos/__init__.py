"""Faults on purpose: what `headrace chaos` does to a whole job, and who judges it."""
