"""The bundle types that come with the bridge: those of the fleet, and those of the demonstration."""

from __future__ import annotations

from trunkline.bridge.demotypes import DEMO_TYPES
from trunkline.bridge.fleettypes import FLEET_TYPES
from trunkline.bridge.types import Types

SHIPPED = Types((*DEMO_TYPES, *FLEET_TYPES))
