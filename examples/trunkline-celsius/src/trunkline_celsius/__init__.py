"""Plugins for routes of Trunkline: degrees, and a logbook."""

from trunkline_celsius.celsius import CELSIUS
from trunkline_celsius.logbook import LOGBOOK

PLUGINS = [CELSIUS, LOGBOOK]
