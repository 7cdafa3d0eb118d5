"""What a node's configuration means for its store."""

from __future__ import annotations

from trunkline.core.bucket import Rate
from trunkline.core.config import LinkConfig, ProcessConfig
from trunkline.store.settings import Settings


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


def _expects_peers(link: LinkConfig) -> bool:
    """A node may stand among its own seeds."""
    return bool(link.links or set(link.seeds) - {link.listen, *link.advertise})
