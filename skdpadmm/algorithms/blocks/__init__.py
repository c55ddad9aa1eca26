"""What touches private rows: states and gradients of records and of agents, and local solvers."""
