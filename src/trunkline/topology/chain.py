"""What a neighbour told about an origin: whether its path can be relied on."""

from __future__ import annotations

from trunkline.topology.neighbours import Link


def validates(link: Link, origin: str, site: str) -> bool:
    """The told path ends at the origin, without this site. Of itself, and where nothing is ever told, there is no doubt."""
    if link.site == origin or not link.neighbour.capable:
        return True
    told = link.told.get(origin)
    return told is not None and told.path[-1:] == (origin,) and not {site, link.site}.intersection(told.path)


def leads_back(link: Link, origin: str, site: str) -> bool:
    """It says that it takes the origin through this site. What it did not tell yet does not."""
    told = link.told.get(origin)
    return link.site != origin and told is not None and site in told.path
