"""How fast the pool is: what is measured, in which processes, beside which limits and peers."""
