"""Whole fleets in virtual time: what can be simulated, what goes wrong in it, and what must be true in the end."""
