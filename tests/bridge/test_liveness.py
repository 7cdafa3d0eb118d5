"""Who is silent, in virtual time: by what the bundles say, whatever the bridge went through."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from trunkline.bridge.liveness import Heard, Liveness

SILENT = 300.0
EVERY = 60.0


@dataclass
class Bridge:
    """A fleet that sends a heartbeat every minute, and a bridge that reads some of what was sent. Time is the fleet's."""

    sites: tuple[str, ...] = ("a", "b", "c")
    now: float = 1_000_000.0
    dead: set[str] = field(default_factory=set)
    backlog: dict[str, list[float]] = field(default_factory=dict)
    last_sent: dict[str, float] = field(default_factory=dict)
    heard: dict[str, Heard] = field(default_factory=dict)
    liveness: Liveness | None = None

    def __post_init__(self) -> None:
        for site in self.sites:
            self._send(site)
        self.restart()
        self.read(*self.sites)

    def restart(self) -> None:
        self.liveness = Liveness(SILENT)

    def stop(self) -> None:
        self.liveness = None

    def _send(self, site: str) -> None:
        self.backlog.setdefault(site, []).append(self.now)
        self.last_sent[site] = self.now

    def passes(self, seconds: float) -> None:
        """Without reading; the bridge judges every ten seconds if it is up."""
        for _ in range(int(seconds // 10)):
            self.now += 10
            for site in self.sites:
                if site not in self.dead and self.now - self.last_sent[site] >= EVERY:
                    self._send(site)
            self.judge()

    def reads_for(self, seconds: float) -> None:
        for _ in range(int(seconds // 10)):
            self.read(*self.sites)
            self.passes(10)
            self.read(*self.sites)

    def read(self, *sites: str) -> None:
        if self.liveness is None:
            return
        for site in sites:
            times = self.backlog.pop(site, [])
            if times:
                before = self.heard.get(site, Heard(0.0, False))
                self.heard[site] = Heard(max(before.last_seen, *times), before.silent)
        self.judge()

    @property
    def caught_up(self) -> bool:
        return not any(self.backlog.values())

    def judge(self) -> None:
        if self.liveness is None:
            return
        verdict = self.liveness.judge(self.now - 5_000, self.caught_up, self.heard)
        for state, sites in ((True, verdict.silent), (False, verdict.active)):
            for site in sites:
                assert self.heard[site].silent is not state
                self.heard[site] = Heard(self.heard[site].last_seen, state)

    def silent(self) -> set[str]:
        return {site for site, heard in self.heard.items() if heard.silent}


def test_nobody_is_silent_before_what_it_sent_is_read() -> None:
    bridge = Bridge()
    bridge.reads_for(120)
    bridge.stop()
    bridge.passes(600)
    bridge.restart()
    bridge.judge()
    bridge.read("a")  # its whole backlog: the watermark is ten minutes after what was read of the others
    bridge.passes(60)
    assert bridge.liveness is not None
    assert bridge.liveness.watermark - bridge.heard["b"].last_seen > SILENT
    assert bridge.silent() == set()
    bridge.reads_for(3600)
    assert bridge.silent() == set()


def test_s31_a_site_six_minutes_behind_the_watermark_is_silent_within_two_minutes_and_active_when_heard() -> None:
    bridge = Bridge()
    bridge.dead.add("b")
    bridge.reads_for(240)
    assert bridge.silent() == set()
    bridge.stop()
    bridge.passes(120)
    bridge.restart()
    assert bridge.now - bridge.heard["b"].last_seen == 360
    bridge.reads_for(120)
    assert bridge.silent() == {"b"}
    bridge.dead.clear()
    bridge.passes(10)
    bridge.read("b")
    assert bridge.silent() == set()


def test_the_watermark_goes_on_with_the_clock_when_the_last_site_falls_silent() -> None:
    bridge = Bridge(sites=("a",))
    bridge.dead.add("a")
    bridge.reads_for(SILENT)
    assert bridge.silent() == set()
    bridge.reads_for(30)
    assert bridge.silent() == {"a"}


def test_a_silent_site_that_is_heard_with_an_old_time_stays_silent() -> None:
    liveness = Liveness(SILENT)
    sites = {"a": Heard(1000.0, False), "b": Heard(100.0, True)}
    assert liveness.judge(0.0, True, sites).active == ()
    assert liveness.judge(1.0, True, {**sites, "b": Heard(600.0, True)}).active == ()
    assert liveness.judge(2.0, False, {**sites, "b": Heard(900.0, True)}).active == ("b",)


def test_the_watermark_never_goes_back() -> None:
    liveness = Liveness(SILENT)
    liveness.judge(0.0, True, {"a": Heard(1000.0, False)})
    liveness.judge(50.0, True, {"a": Heard(1000.0, False)})
    assert liveness.watermark == 1050.0
    liveness.judge(50.0, True, {"a": Heard(1010.0, False)})
    assert liveness.watermark == 1050.0
    liveness.judge(60.0, False, {})
    assert liveness.watermark == 1050.0


_SITE = st.sampled_from(("a", "b", "c"))
_STEP = st.one_of(
    st.tuples(st.just("passes"), st.integers(1, 90).map(lambda n: n * 10.0)),
    st.tuples(st.just("reads_for"), st.integers(1, 60).map(lambda n: n * 10.0)),
    st.tuples(st.just("read"), _SITE),
    st.tuples(st.just("die"), _SITE),
    st.tuples(st.just("revive"), _SITE),
    st.tuples(st.just("stop"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)


@given(st.lists(_STEP, max_size=25))
def test_s31_model_the_living_are_never_silenced_and_the_dead_are_in_time(steps: list[tuple[str, object]]) -> None:
    bridge = Bridge()
    for name, argument in steps:
        if name == "die":
            bridge.dead.add(str(argument))
        elif name == "revive":
            bridge.dead.discard(str(argument))
        else:
            getattr(bridge, name)(*([] if argument is None else [argument]))
        for site in bridge.silent():
            assert bridge.now - bridge.heard[site].last_seen > SILENT
            assert site in bridge.dead or bridge.backlog.get(site) or bridge.now - bridge.last_sent[site] >= EVERY
    bridge.restart()
    bridge.reads_for(SILENT + 120)
    dead = {site for site in bridge.sites if bridge.now - bridge.last_sent[site] > SILENT + 120}
    assert dead <= bridge.silent() <= bridge.dead
