"""Where a route's events come from."""

from __future__ import annotations

from typing import Any

from trunkline.routes.plugin import ReceiverPlugin
from trunkline.routes.receivers.debug import DEBUG
from trunkline.routes.receivers.files import FILES
from trunkline.routes.receivers.http import HTTP
from trunkline.routes.receivers.kafka import KAFKA
from trunkline.routes.receivers.nop import NOP
from trunkline.routes.receivers.queue import QUEUE
from trunkline.routes.receivers.redis import REDIS

RECEIVERS: tuple[ReceiverPlugin[Any], ...] = (KAFKA, QUEUE, FILES, HTTP, REDIS, DEBUG, NOP)
