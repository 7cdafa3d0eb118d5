"""`link:<site>` in the store: whom a site hears. The only input to paths, and written by that site's leader alone."""

from __future__ import annotations

import msgspec

from trunkline.core.codec import Codec

HOP = 1
"""What a link costs unless its site says otherwise."""


class LinkRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """Value of `link:<site>`: the sites it hears. Cost and `no_relay` are published, for private policy makes loops (H26)."""

    incarnation: int
    hears: tuple[str, ...]
    costs: dict[str, int] = {}
    """Of links that do not cost one hop."""
    no_relay: bool = False
    """Nobody takes another site's records through it."""

    def version(self, counter: int) -> int:
        """A new leader's row always wins over its predecessor's."""
        return self.incarnation << 32 | counter

    def cost(self, site: str) -> int:
        return self.costs.get(site, HOP)


LINK_ROWS: Codec[LinkRow] = Codec("link row", LinkRow)
