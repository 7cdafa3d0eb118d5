"""Trunkline keeps a fleet of sites in step."""

__version__ = "0.1.0"
