"""Where a route's events go."""

from __future__ import annotations

from typing import Any

from trunkline.routes.plugin import SenderPlugin
from trunkline.routes.senders.debug import DEBUG
from trunkline.routes.senders.files import FILES
from trunkline.routes.senders.http import HTTP
from trunkline.routes.senders.kafka import KAFKA
from trunkline.routes.senders.nop import NOP
from trunkline.routes.senders.postgres import POSTGRES
from trunkline.routes.senders.queue import QUEUE
from trunkline.routes.senders.redis import REDIS

SENDERS: tuple[SenderPlugin[Any], ...] = (KAFKA, QUEUE, POSTGRES, FILES, HTTP, REDIS, DEBUG, NOP)
