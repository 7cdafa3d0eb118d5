"""`trunkline routes`: people's tools for routes."""
