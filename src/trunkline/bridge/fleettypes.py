"""The types of the fleet."""

from __future__ import annotations

from trunkline.bridge.types import BundleType

FLEET_TYPES: tuple[BundleType, ...] = ()
