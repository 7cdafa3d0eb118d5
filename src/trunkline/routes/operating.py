"""What can be asked of a site's routing table, and what can be done with it: all that the API offers, on the node's event loop.

1. The answers are as `trunkline.api.routesmodels` has them, and never hold a secret.
2. What is not there raises `NoSuchTenant`, `NoSuchRoute`, `NoSuchFragment`; what is there already `Exists`; what changed
   since it was read `Conflict`; what is wrong with what was sent `Invalid`, `Mistakes` where there may be several.
3. Everything of a tenant asks first whether that tenant is there; the house always is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from trunkline.routes.busy import Busy, CountsOf, none_counted
from trunkline.routes.changing import Changing
from trunkline.routes.counted import SparkCounts
from trunkline.routes.eventing import Eventing, Injects, Posts
from trunkline.routes.fragmented import Fragments
from trunkline.routes.instances import Instance
from trunkline.routes.lettering import Lettering, Letters
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.plugins_shown import Plugins, RunningCounts, no_counts
from trunkline.routes.redaction import ModelOf
from trunkline.routes.shown import models_of
from trunkline.routes.standing import AckedRows, Standing
from trunkline.routes.storage.base import Storage
from trunkline.routes.tenancy import Tenancy
from trunkline.routes.tenants import Tenants
from trunkline.routes.told import ToldRows
from trunkline.routes.trial import Trial
from trunkline.routes.workshop import Workshop
from trunkline.routes.writing import Writing


def _alone() -> Sequence[Instance]:
    return ()


@dataclass(frozen=True)
class RoutesOperating:
    """`others`: the other instances that are alive. `acks`: those that a database keeps for all; none: only what was heard here
    is known. `told`: how the others say that their tables are. `counts`, `counts_of`: what the runner counted, for a plugin and
    for a route; `spark`: what pipelines did.
    `runner`, `hooks`, `dead_letters`: none where no route runs. `event_seconds`: how long an event that somebody injects may
    take."""

    manager: RoutingTableManager
    storage: Storage
    tenants: Tenants
    workshop: Workshop
    others: Callable[[], Sequence[Instance]] = _alone
    acks: AckedRows | None = None
    counts: RunningCounts = no_counts
    runner: Injects | None = None
    hooks: Posts | None = None
    event_seconds: float = 5.0
    dead_letters: Letters | None = None
    counts_of: CountsOf = none_counted
    spark: SparkCounts | None = None
    told: ToldRows | None = None

    @cached_property
    def model_of(self) -> ModelOf:
        return models_of(self.workshop.plugins)

    @cached_property
    def writing(self) -> Writing:
        return Writing(self.storage, self.workshop)

    @cached_property
    def tenancy(self) -> Tenancy:
        """Tenants and their quotas."""
        return Tenancy(self.manager, self.storage, self.tenants)

    @cached_property
    def fragments(self) -> Fragments:
        return Fragments(self.storage, self.tenancy, self.workshop.plugins)

    @cached_property
    def routes(self) -> Changing:
        """Routes: looked at, and changed."""
        return Changing(self.manager, self.storage, self.tenancy, self.writing, self.model_of)

    @cached_property
    def events(self) -> Eventing:
        """Given by hand."""
        return Eventing(self.manager, self.tenancy, self.routes, self.runner, self.hooks, self.event_seconds)

    @cached_property
    def letters(self) -> Lettering:
        """What no route could bring to its end."""
        return Lettering(self.dead_letters, self.storage, self.workshop)

    @cached_property
    def busy(self) -> Busy:
        """Which routes have how much to do."""
        return Busy(self.manager, self.tenancy, self.counts_of, self.spark)

    @cached_property
    def trial(self) -> Trial:
        """What would become of events."""
        return Trial(self.storage, self.tenancy, self.workshop, self.writing, self.manager.rests)

    @cached_property
    def standing(self) -> Standing:
        """How routes are at each instance, and repairs."""
        return Standing(self.manager, self.storage, self.tenancy, self.others, self.acks, self.told)

    @cached_property
    def plugins(self) -> Plugins:
        """What runs here, and what could."""
        return Plugins(self.manager, self.tenancy, self.workshop.plugins, self.counts)
