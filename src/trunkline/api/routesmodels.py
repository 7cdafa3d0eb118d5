"""What the API answers about routes, and what it takes, as its description shows it. Names are those of EARS."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trunkline.api.problem import MistakeShown

Json = dict[str, Any]


class _Shown(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Answered(_Shown):
    code: int = Field(description="the HTTP status")
    message: str


class Envelope(_Shown):
    status: Answered


class TenantName(_Shown):
    orgId: str
    appId: str


class PluginShown(BaseModel):
    """A plugin of a route. Secrets are references or stars."""

    plugin: str
    name: str | None = None
    config: Any = None


class RouteShown(BaseModel):
    """A route as it was written, without its secrets, and what is known of it. It can be sent back as it is."""

    model_config = ConfigDict(extra="allow")

    id: str
    tenant: TenantName
    receiver: PluginShown
    filterChain: list[PluginShown] | None = None
    sender: PluginShown
    inactive: bool
    status: str = Field(description="running, or stopped if it is inactive")
    created: int = Field(description="unix seconds")
    modified: int = Field(description="unix seconds")
    hash: str = Field(description="of what it does: ids with equal hashes share one live route")
    revision: int = Field(description="of the table, when it was last changed")


class HereShown(_Shown):
    state: str = Field(description="live, rests, refused or absent")
    revision: int = Field(description="that this instance has; 0: none")
    refused: int = Field(description="the revision that did not start; 0: none")
    reason: str = Field(description="why it rests or did not start")


class ChangeShown(_Shown):
    session: str = Field(description="of the change; empty: there was nothing to tell the others")
    complete: bool = Field(description="whether all other instances have answered")
    acked: dict[str, int] = Field(description="instance → the revision that it has")
    refused: dict[str, str] = Field(description="instance → why it does not run it")
    missing: list[str] = Field(description="instances that have not answered yet")


class RouteAnswer(Envelope):
    item: RouteShown


class RouteChanged(RouteAnswer):
    warnings: list[MistakeShown]
    here: HereShown = Field(description="what became of it at this instance")
    change: ChangeShown = Field(description="what became of it at the others, as far as they have answered")


class RouteRemoved(Envelope):
    item: str = Field(description="its id")
    change: ChangeShown


class RoutesAnswer(Envelope):
    items: list[RouteShown]
    next: str | None = Field(description="ask for routes after this one; none: these are all")


class RoutesReloaded(Envelope):
    items: list[str] = Field(description="org/app/id of each")
    change: ChangeShown


class QuotaShown(_Shown):
    eventsPerSec: float | None = Field(description="0 lets nothing pass, none everything")


class TenantShown(_Shown):
    tenant: TenantName
    quota: QuotaShown
    clientIds: list[str] = Field(description="names of the tokens that may change its routes; none: all with the role write")
    openEventApi: bool = Field(description="whether events may be sent without a token")
    modified: int = Field(description="unix seconds")


class TenantAnswer(Envelope):
    item: TenantShown


class TenantChanged(TenantAnswer):
    warnings: list[MistakeShown]


class TenantRemoved(Envelope):
    item: TenantName


class TenantsAnswer(Envelope):
    items: list[TenantShown]


class FragmentShown(BaseModel):
    """A plugin with a name. Secrets are references or stars."""

    model_config = ConfigDict(extra="allow")

    name: str
    plugin: str
    config: Any = None
    tenant: TenantName
    modified: int = Field(description="unix seconds")


class FragmentAnswer(Envelope):
    item: FragmentShown


class FragmentRemoved(Envelope):
    item: str = Field(description="its name")


class FragmentsAnswer(Envelope):
    items: list[FragmentShown]


class RunningShown(_Shown):
    name: str = Field(description="that it was given, or its plugin's")
    plugin: str
    config: Any = Field(description="with its defaults, without its secrets")
    referenceCount: int = Field(description="live routes of this instance that use it")
    successCount: int | None = Field(description="none: nobody counts that")
    errorCount: int | None
    filterCount: int | None = Field(description="events that it kept back")
    lastEventTs: int | None = Field(description="unix seconds; 0: no event yet")
    tenant: TenantName


class RunningAnswer(Envelope):
    item: RunningShown


class RunningsAnswer(Envelope):
    items: list[RunningShown]


class DeclaredShown(_Shown):
    kind: str = Field(description="receiver, filter or sender")
    name: str
    about: str
    runs: str = Field(description="which runner can run it: local, spark or both")
    package: str = Field(description="that it comes from; empty: Trunkline")


class DeclarationShown(DeclaredShown):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    json_schema: Json = Field(alias="schema", description="JSON Schema of what it may be told")


class DeclaredAnswer(Envelope):
    items: list[DeclaredShown]


class DeclarationAnswer(Envelope):
    item: DeclarationShown


class InstanceShown(_Shown):
    instance: str
    state: str = Field(
        description="live, rests, refused, absent; of others: acked, behind, refused, loaded (it looked by itself), unknown"
    )
    revision: int = Field(description="that it has, as far as is known; 0: none")
    refused: int = Field(description="the revision that did not start; 0: none")
    reason: str
    at: float | None = Field(description="when it said so, unix seconds; none: now, or never")


class RouteStanding(_Shown):
    id: str
    tenant: TenantName
    revision: int = Field(description="that is stored; 0: it is removed")
    instances: list[InstanceShown]


class StandingShown(_Shown):
    instance: str = Field(description="that answers")
    instances: list[str] = Field(description="all that are alive")
    ready: bool
    routes: list[RouteStanding]
    next: str | None = Field(description="ask for routes after this one; none: these are all")


class RepairedRoute(_Shown):
    id: str
    tenant: TenantName
    what: str = Field(description="missing, extra or different")


class RefusedRoute(_Shown):
    id: str
    tenant: TenantName
    reason: str


class RepairShown(_Shown):
    at: float = Field(description="unix seconds")
    revision: int = Field(description="of the table that it was compared with")
    repaired: list[RepairedRoute]
    refused: list[RefusedRoute]


class RepairsShown(_Shown):
    repairs: list[RepairShown] = Field(description="those that found something, the newest first")


class AppliedRoute(_Shown):
    id: str
    tenant: TenantName
    what: Literal["added", "changed", "unchanged", "removed", "absent"]
    hash: str = Field(description="empty: it is removed")
    revision: int = Field(description="after the change; of a dry run before it; 0: not there")
    here: HereShown | None = Field(description="of a dry run none")
    warnings: list[MistakeShown]


class AppliedShown(_Shown):
    dry_run: bool
    routes: list[AppliedRoute] = Field(description="in the order of the changes")
    change: ChangeShown | None


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class ChangeWanted(_Body):
    """Either `put` or `remove`."""

    put: Json | None = Field(default=None, description="a route; its `tenant` says whose it is")
    remove: Json | None = Field(default=None, description="`tenant` and `id` of a route")
    revision: int | None = Field(
        default=None, ge=0, le=2**63 - 1, description="that it must be at; 0: it must not be there; left out: whatever is there"
    )


class ApplyWanted(_Body):
    changes: list[ChangeWanted] = Field(max_length=10_000)
    dry_run: bool = Field(default=False, description="everything is checked, and nothing is changed")


class TenantWanted(_Body):
    """Left out: `trunkline/trunkline`."""

    orgId: str = Field(max_length=255)
    appId: str = Field(max_length=255)


class EventWanted(_Body):
    payload: Any = Field(description="any JSON value")
    metadata: Json = Field(default_factory=dict)


class ExplainWanted(EventWanted):
    tenant: TenantWanted | None = None


class TestWanted(_Body):
    """A route that is stored, by its `id`, or one that is not (yet), as `route`."""

    tenant: TenantWanted | None = None
    id: str = Field(default="", max_length=255)
    route: Json | None = None
    events: list[EventWanted] = Field(min_length=1, max_length=1_000)


class PassedShown(_Shown):
    step: str
    came: int = Field(description="events that came to this filter")
    went: int = Field(description="that went on")


class ExplainedShown(_Shown):
    id: str
    tenant: TenantName
    verdict: str = Field(
        description="taken, dropped, held, dead_letter, failed, inactive, elsewhere: it is of another region, or refused: it "
        "cannot be compiled"
    )
    receiver: str = Field(description="its plugin: whether the event comes that way is not judged")
    step: str = Field(description="where the event ended; empty: it was taken")
    reason: str
    messages: list[Json] = Field(description="what the sender would be given")
    faults: list[str] = Field(description="what filters could not process")
    steps: list[PassedShown]


class ExplainShown(_Shown):
    routes: list[ExplainedShown]
    next: str | None = Field(description="ask for routes after this one; none: these are all")


class TestShown(_Shown):
    id: str
    tenant: TenantName
    events: list[ExplainedShown] = Field(description="what became of each event")
    flushed: list[Json] = Field(description="messages that filters held back, as if their time was over")


class TookShown(_Shown):
    id: str
    outcome: str = Field(description="sent, kept (for another try), dead_letter or dropped")
    sent: int
    kept: int
    letters: list[str] = Field(description="why something of it became a dead letter")


class EventShown(BaseModel):
    model_config = ConfigDict(extra="forbid")

    routeId: str | None = None
    trace_id: str = Field(alias="tx.traceId")
    outcome: str = Field(description="acked; anything else is a problem")
    routes: list[TookShown] = Field(description="what each route made of it; one that is not here dropped it")


class EventAnswer(Envelope):
    item: EventShown


class LetterRow(_Shown):
    id: int
    tenant: TenantName
    route: str
    sender: str = Field(description="the plugin of the route's sender")
    step: str = Field(description="the filter that could not process it, or where it failed behind the filters")
    reason: str
    tries: int
    came: float = Field(description="when its event came in, unix seconds")
    at: float = Field(description="when it was given up, unix seconds")


class LetterShown(LetterRow):
    content: Any = Field(description="the event as it came to that step, or the message that could not be sent")


class LettersShown(_Shown):
    letters: list[LetterRow]
    next: int | None = Field(description="ask for letters after this one; none: these are all")


class LetterTried(_Shown):
    id: int
    tried_again: bool


class LetterDropped(_Shown):
    id: int
    dropped: bool


ROUTE_WANTED: Json = {
    "type": "object",
    "description": "A route as EARS has it; see the reference of routes for its keys",
    "required": ["userId", "receiver", "sender"],
    "properties": {
        "id": {"type": "string", "description": "left out: the hash of what it does"},
        "userId": {"type": "string", "minLength": 1},
        "receiver": {"type": "object", "properties": {"plugin": {"type": "string"}, "config": {"type": "object"}}},
        "filterChain": {"type": "array", "items": {"type": "object"}},
        "sender": {"type": "object", "properties": {"plugin": {"type": "string"}, "config": {"type": "object"}}},
        "inactive": {"type": "boolean"},
    },
}
FRAGMENT_WANTED: Json = {
    "type": "object",
    "required": ["plugin"],
    "properties": {"name": {"type": "string"}, "plugin": {"type": "string"}, "config": {"type": "object"}},
}
TENANT_WANTED: Json = {
    "type": "object",
    "properties": {
        "quota": {"type": "object", "properties": {"eventsPerSec": {"type": ["number", "null"], "minimum": 0}}},
        "clientIds": {"type": "array", "items": {"type": "string"}},
        "openEventApi": {"type": "boolean"},
    },
}
