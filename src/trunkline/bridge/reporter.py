"""What a site sends of its status, and under which version. No I/O: a transport keeps the state and carries the bundles.

R1  A version is (incarnation, generation): the incarnation is raised at each start, to greatest(old + 1, unix seconds) (H02);
    the generation with each send of a type. So no version is ever sent twice with different content.
R2  A complete bundle is sent only if it differs from the last one, or that is too old or of another run, or the hub asks for
    it. One that must match its base exactly counts as different when the base was sent anew.
R3  A bundle whose type has a base names the version of the base that was sent last; there must be one.
R4  Deltas, hybrid changes and appended rows are sent whenever there are any.
R5  A resync of a hybrid type is all its objects and then the list of all of them, under one generation; of a delta its base.
    Whoever must match its base exactly follows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from trunkline.bridge.types import BundleType, Match, Types
from trunkline.bridge.wishes import to_ask
from trunkline.core.bundle import Bundle, Chunk, Dependency, Mode, Version
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps

FULL_SECONDS = 6 * 3600.0
PART_BYTES = 800 << 10


@dataclass(frozen=True)
class Last:
    """The newest bundle of a type. `digest` is '' when it does not count any more; `at` is in unix seconds."""

    version: Version
    digest: str
    at: float


@dataclass(frozen=True)
class Known:
    """What is durable when a bundle is made: of its own type, and of its base."""

    incarnation: int
    own: Last | None = None
    base: Last | None = None


@dataclass(frozen=True)
class Changes:
    """Of a hybrid type: whole objects, and {id, ns, name} of those that are gone."""

    create: Sequence[Any] = ()
    update: Sequence[Any] = ()
    delete: Sequence[Any] = ()

    def document(self) -> dict[str, Any]:
        return {name: list(part) for name, part in vars(self).items() if part}


@dataclass(frozen=True)
class Outgoing:
    """All bundles have one version; `last` is to be kept together with the sending of them."""

    bundles: tuple[Bundle, ...]
    last: Last

    @property
    def version(self) -> Version:
        return self.last.version


def next_incarnation(old: int | None, unix_seconds: float) -> int:
    return max((old or 0) + 1, int(unix_seconds))


@dataclass(frozen=True)
class Composer:
    """`full_seconds`: what was sent longer ago is sent again, changed or not. A payload above `part_bytes` travels in parts."""

    site: str
    types: Types
    full_seconds: float = FULL_SECONDS
    part_bytes: int = PART_BYTES

    def compose(self, name: str, content: Any, known: Known, now: float, force: bool = False) -> Outgoing | None:
        """Rows of a complete, delta or append type, or `Changes` of a hybrid one; None if nothing is to be sent."""
        declared = self.types[name]
        if (declared.mode is Mode.HYBRID) is not isinstance(content, Changes):
            wanted = "changes" if declared.mode is Mode.HYBRID else "rows"
            raise Invalid(f"report of {name}", f"it is {declared.mode}, and this is not its form", f"report {wanted}")
        document = content.document() if isinstance(content, Changes) else content
        if declared.mode is not Mode.COMPLETE:
            return self._outgoing(declared, [document], known, now) if document else None
        digest = _digest(dumps(document), self._dependency(declared, known) if declared.match is Match.EXACT else None)
        if not force and known.own is not None and known.own.digest == digest and not self.is_due(known, now):
            return None
        return self._outgoing(declared, [document], known, now, digest)

    def restore(self, name: str, content: Any, known: Known, now: float) -> Outgoing:
        """All there is: rows of a complete type, objects of a hybrid one."""
        declared = self.types[name]
        if declared.mode is Mode.HYBRID:
            return self._outgoing(declared, list(resync_parts(content, self.part_bytes)), known, now)
        if declared.mode is not Mode.COMPLETE:
            raise Invalid(f"resync of {name}", f"it is {declared.mode}", f"send its base {declared.depends_on or ''}".rstrip())
        sent = self.compose(name, content, known, now, force=True)
        assert sent is not None, "what is forced is sent"
        return sent

    def is_due(self, known: Known, now: float) -> bool:
        """Whether all there is should be sent, changed or not."""
        last = known.own
        return last is None or last.version.incarnation != known.incarnation or now - last.at >= self.full_seconds

    def to_send(self, asked: Iterable[str]) -> tuple[str, ...]:
        """What answers a request for these types, bases first; what is not declared here is left out."""
        todo = {base for name in asked if name in self.types and (base := to_ask(self.types, name))}
        ordered = sorted(self.types.values(), key=lambda declared: declared.priority)
        for declared in ordered:
            if declared.mode is Mode.COMPLETE and declared.needs_dependency and declared.depends_on in todo:
                todo.add(declared.name)
        return tuple(declared.name for declared in ordered if declared.name in todo)

    def _outgoing(self, declared: BundleType, documents: list[Any], known: Known, now: float, digest: str = "") -> Outgoing:
        generation = known.own.version.generation + 1 if known.own else 1
        version = Version(known.incarnation, generation)
        bundle = Bundle(
            id=f"{self.site}-{declared.name}-{version}", source=self.site, type=declared.name, mode=declared.mode,
            time=datetime.fromtimestamp(now, UTC).isoformat(), version=version, dependency=self._dependency(declared, known),
        )  # fmt: skip
        many = len(documents) > 1
        bundles = [
            msgspec.structs.replace(bundle, id=f"{bundle.id}-{nth}" if many else bundle.id, data=dumps(document))
            for nth, document in enumerate(documents)
        ]
        return Outgoing(tuple(piece for one in bundles for piece in chunked(one, self.part_bytes)), Last(version, digest, now))

    def _dependency(self, declared: BundleType, known: Known) -> Dependency | None:
        if declared.depends_on is None:
            return None
        if known.base is None:
            raise Invalid(
                f"report of {declared.name}", f"no {declared.depends_on} was sent yet", f"report {declared.depends_on} first"
            )
        return Dependency(declared.depends_on, known.base.version)


def identity(one: Mapping[str, Any]) -> dict[str, str]:
    """How an object is named where it is listed or deleted: a cluster by its claim, anything else by its uid."""
    meta = one.get("metadata", {})
    claims = one.get("status", {}).get("clusterClaims", [])
    claimed = [str(claim.get("value", "")) for claim in claims if claim.get("name") == "id.k8s.io"]
    id_ = claimed[0] if claimed else str(meta.get("uid", ""))
    return {"id": id_, "ns": str(meta.get("namespace", "")), "name": str(meta.get("name", ""))}


def resync_parts(objects: Sequence[Any], most: int) -> Iterator[dict[str, Any]]:
    """Each of at most so many bytes, unless one object alone has more; the list of all comes last."""
    part, size = list[Any](), 0
    for one in objects:
        length = len(dumps(one)) + 1
        if part and size + length > most:
            yield {"resync": part}
            part, size = [], 0
        part.append(one)
        size += length
    if part:
        yield {"resync": part}
    yield {"resync_metadata": [identity(one) for one in objects]}


def chunked(bundle: Bundle, most: int) -> Iterator[Bundle]:
    size = len(bundle.data)
    if size <= most:
        yield bundle
        return
    for start in range(0, size, most):
        end = min(start + most, size)
        yield msgspec.structs.replace(bundle, data=bundle.data[start:end], chunk=Chunk(end, size))


def forgotten(last: Last) -> Last:
    """Its bundles may not have come: the next ones are sent whatever they hold."""
    return replace(last, digest="")


def _digest(data: bytes, dependency: Dependency | None) -> str:
    return hashlib.blake2b(data + str(dependency or "").encode(), digest_size=16).hexdigest()
