"""`trunkline kv`: the replicated store, asked over a node's API."""
