"""A run over several hosts: its topology, what starts where, and how engines that place processes are told."""
