"""What a node's configuration means for its store, its topology and its trunk."""

from __future__ import annotations

from trunkline.core.bucket import Rate
from trunkline.core.config import LinkConfig, ProcessConfig
from trunkline.store.settings import Settings
from trunkline.topology.settings import PublishRowsWhen, Tie
from trunkline.topology.settings import Settings as TopologySettings


def store_settings(config: ProcessConfig) -> Settings:
    store = config.store
    rate = None
    if store.flood_per_second is not None and store.flood_burst is not None:
        rate = Rate(store.flood_per_second, store.flood_burst)
    return Settings(
        ttl_ms=int(store.key_ttl_seconds * 1000),
        sync_seconds=store.compare_seconds,
        flood_rate=rate,
        synced_seconds=store.start_seconds if _expects_peers(config.link) else None,
    )


def topology_settings(config: ProcessConfig) -> TopologySettings:
    topology = config.topology
    return TopologySettings(
        heartbeat_seconds=config.link.heartbeat_seconds,
        hold_seconds=topology.hold_seconds,
        tie=Tie(topology.tie),
        rebalance=topology.rebalance,
        publish_rows=PublishRowsWhen(topology.publish_rows),
        no_relay=topology.no_relay,
        costs=dict(topology.costs),
    )


def _expects_peers(link: LinkConfig) -> bool:
    """A node may stand among its own seeds."""
    return bool(link.links or link.follows or set(link.seeds) - {link.listen, *link.advertise})
