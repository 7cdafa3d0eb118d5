"""What every delta syncer must do: subclass `SyncSuite` and give it a `channel`, which joins instances and can be away."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from structlog.testing import capture_logs

from route_ears import MINE, Between, Ear, Served, joined, listening, new_session, until
from trunkline.core.errors import Retryable
from trunkline.routes.keys import HOUSE, Tenant
from trunkline.routes.sync.base import Ack, Answer, Delta, Item, Operation
from trunkline.routes.sync.carrier import Channel
from trunkline.routes.sync.syncer import Syncer
from trunkline.routes.sync.waiting import MANY


class SyncSuite:
    async def test_s14_of_five_syncers_four_hear_one_publish_and_the_publisher_does_not(self, channel: Between) -> None:
        first, *others = ears = joined(channel, 5)
        async with listening(*ears):
            session = first.publish("x")
            expected = [Delta(Operation.ADD, MINE, "x", first.name, session)]
            await until(lambda: all(ear.deltas == expected for ear in others))
            others[0].publish("last")
            await until(lambda: all("last" in ear.ids for ear in ears if ear is not others[0]))
            assert [ear.ids for ear in ears] == [["last"], ["x"], *[["x", "last"]] * 3]

    async def test_s14_what_is_no_delta_calls_nobody_and_is_counted(self, channel: Between) -> None:
        garbage = [
            "add,x,i9,s9,fragment,myorg,myapp", "move,x,i9,s9", "add,x,i9", "add,,i9,s9", "", "hello", "add,%ff,i9,s9",
            '{"cmd":"add"}', "add,x,i9,s9,tenant,myorg,myapp",
        ]  # fmt: skip
        first, second = joined(channel, 2)
        async with listening(first, second):
            for text in garbage:
                await channel.say(Channel.SYNC, text)
            await channel.say(Channel.ACK, "add,x,i9")
            second.publish("last")
            await until(lambda: first.deltas)
            assert first.ids == ["last"]
            await until(lambda: first.syncer.counts.ignored == second.syncer.counts.ignored == len(garbage) + 1)

    async def test_s14_doubled_and_reordered_deltas_come_as_they_are_and_all_end_as_the_store(self, channel: Between) -> None:
        store: dict[str, int] = {}

        class Instance(Ear):
            def __init__(self, syncer: Syncer) -> None:
                super().__init__(syncer)
                self.table: dict[str, int] = {}

            async def on_delta(self, delta: Delta) -> None:
                await super().on_delta(delta)
                await asyncio.sleep(0)  # as long as reading takes
                self.table.pop(delta.id, None)
                if delta.id in store:
                    self.table[delta.id] = store[delta.id]

        first, second, third = instances = [Instance(channel.syncer(f"i{n}")) for n in (1, 2, 3)]
        random = Random(14)
        async with listening(*instances):
            deltas: list[Delta] = []
            for revision in range(60):
                id = f"r{revision % 7}"
                if random.random() < 0.4:
                    store.pop(id, None)
                else:
                    store[id] = revision
                operation = Operation.ADD if id in store else Operation.REMOVE
                deltas += [Delta(operation, MINE, id, first.name, f"s{revision}")] * random.choice((1, 2))
            random.shuffle(deltas)
            for delta in deltas:
                first.syncer.publish([delta])
            await until(lambda: len(second.deltas) == len(third.deltas) == len(deltas))
            assert second.deltas == third.deltas == deltas
            await until(lambda: second.table == third.table == store)
            assert store

    async def test_whatever_characters_names_have(self, channel: Between) -> None:
        first, second = joined(channel, 2)
        odd = Tenant("o,r%2Cg", "a\np/p")
        session = new_session() + ",é\x00"
        deltas = [
            Delta(Operation.ADD, odd, "a,b\n%0Ac☃\x00", first.name, session),
            Delta(Operation.REMOVE, HOUSE, "plain", first.name, session),
            Delta(Operation.ADD, odd, "", first.name, session, Item.TENANT),
        ]
        async with listening(first, second):
            first.syncer.publish(deltas)
            await until(lambda: len(second.deltas) == 3)
            assert second.deltas == deltas

    async def test_an_ack_reaches_only_who_published_its_session(self, channel: Between) -> None:
        first, second, third = ears = joined(channel, 3)
        async with listening(*ears):
            first.publish("x")
            second.publish("y", operation=Operation.REMOVE)
            await until(lambda: len(third.deltas) == 2)
            of = {delta.id: delta for delta in third.deltas}
            done = Ack.of(of["x"], third.name, 7)
            refused = Ack.of(of["y"], third.name, 0, "no, because:\n'%s', 1 > 0, €")
            third.syncer.ack(done)
            third.syncer.ack(refused)
            await until(lambda: first.acks and second.acks)
            assert (first.acks, second.acks, third.acks) == ([done], [refused], [])

    async def test_a_long_reason_is_cut(self, channel: Between) -> None:
        first, second = joined(channel, 2)
        async with listening(first, second):
            first.publish("x")
            await until(lambda: second.deltas)
            second.syncer.ack(Ack.of(second.deltas[0], second.name, 3, "☃" * 5_000))
            await until(lambda: first.acks)
            assert first.acks[0].reason == "☃" * 499 + "…"

    async def test_a_publishing_of_many_comes_in_its_order(self, channel: Between) -> None:
        first, second = joined(channel, 2)
        ids = [f"a-route-with-a-rather-long-name-{n}" for n in range(MANY)]
        async with listening(first, second):
            first.publish(*ids)
            await until(lambda: len(second.deltas) >= MANY)
            assert second.ids == ids

    async def test_too_many_are_one_look_at_everything_and_one_ack(self, channel: Between) -> None:
        first, second, third = ears = joined(channel, 3)
        async with listening(*ears):
            session = first.publish(*[f"r{n}" for n in range(MANY + 1)])
            await until(lambda: len(first.acks) == 2)
            assert {(ack.session, ack.instance, ack.operation, ack.reason) for ack in first.acks} == {
                (session, ear.name, Operation.ALL, "") for ear in (second, third)
            }
            assert [(ear.gaps, ear.deltas) for ear in ears] == [(1, []), (2, []), (2, [])]

    async def test_a_look_at_everything_is_acked_when_it_is_done_with_what_was_refused(self, channel: Between) -> None:
        class Slow(Ear):
            answer: Answer

            async def on_gap(self, answer: Answer) -> None:
                self.gaps, self.answer = self.gaps + 1, answer

        first, slow = Ear(channel.syncer("i1")), Slow(channel.syncer("i2"))
        async with listening(first, slow):
            session = first.publish(*[f"r{n}" for n in range(MANY + 1)])
            await until(lambda: slow.gaps == 2)
            slow.publish("after")
            await until(lambda: first.deltas)
            assert first.acks == []
            slow.answer("r7: it is broken")
            await until(lambda: first.acks)
            assert first.acks == [Ack(session, "i2", 0, "r7: it is broken", Operation.ALL)]

    async def test_a_gap_is_told_when_it_starts_and_deltas_that_come_meanwhile_are_heard(self, channel: Between) -> None:
        first = Ear(channel.syncer("i1"))

        class Slow(Ear):
            async def on_gap(self, answer: Answer) -> None:
                first.publish("meanwhile")
                await until(lambda: self.syncer.counts.heard)
                assert self.deltas == []
                self.gaps += 1

        slow = Slow(channel.syncer("i2"))
        async with listening(first, slow):
            await until(lambda: slow.deltas)
            assert (slow.ids, slow.gaps) == (["meanwhile"], 1)

    async def test_callbacks_come_one_after_the_other_and_acks_do_not_wait_for_them(self, channel: Between) -> None:
        go_on = asyncio.Event()

        class Slow(Ear):
            inside = 0

            async def on_delta(self, delta: Delta) -> None:
                self.inside += 1
                assert self.inside == 1
                await go_on.wait()
                self.inside -= 1
                await super().on_delta(delta)

        first, slow = Ear(channel.syncer("i1")), Slow(channel.syncer("i2"))
        async with listening(first, slow):
            slow.publish("mine")
            await until(lambda: first.deltas)
            first.publish("a", "b")
            await until(lambda: slow.syncer.counts.heard == 2)
            first.syncer.ack(Ack.of(first.deltas[0], first.name, 1))
            await until(lambda: slow.acks)
            assert slow.deltas == []
            go_on.set()
            await until(lambda: slow.ids == ["a", "b"])
            assert slow.syncer.counts.failed == 0

    async def test_a_callback_that_raises_is_counted_and_the_next_one_is_called(self, channel: Between) -> None:
        class Wrong(Ear):
            async def on_delta(self, delta: Delta) -> None:
                await super().on_delta(delta)
                if delta.id == "bad":
                    raise RuntimeError("cannot")

            def on_ack(self, ack: Ack) -> None:
                super().on_ack(ack)
                if ack.revision == 13:
                    raise RuntimeError("cannot")

        first, wrong = Ear(channel.syncer("i1")), Wrong(channel.syncer("i2"))
        with capture_logs() as logs:
            async with listening(first, wrong):
                first.publish("bad", "good")
                wrong.publish("mine")
                await until(lambda: wrong.ids == ["bad", "good"] and first.deltas)
                for revision in (13, 14):
                    first.syncer.ack(Ack(first.deltas[0].session, first.name, revision, id=f"of {revision}"))
                await until(lambda: [ack.revision for ack in wrong.acks] == [13, 14])
                assert wrong.syncer.counts.failed == 2
        assert [line["log_level"] for line in logs] == ["error"] * 2

    async def test_a_gap_whose_callback_raises_is_told_again(self, channel: Between) -> None:
        class Unlucky(Ear):
            async def on_gap(self, answer: Answer) -> None:
                self.gaps += 1
                if self.gaps == 2:
                    raise RuntimeError("the storage is away")
                answer("")

        first, unlucky = Ear(channel.syncer("i1")), Unlucky(channel.syncer("i2"))
        with capture_logs():
            async with listening(first, unlucky):
                first.publish(*[f"r{n}" for n in range(MANY + 1)])
                await until(lambda: first.acks)
                assert (unlucky.gaps, len(first.acks)) == (3, 1)

    async def test_the_server_goes_and_is_back_then_each_hears_of_a_gap_and_deltas_flow(self, channel: Between) -> None:
        first, *others = ears = joined(channel, 5)
        with capture_logs() as logs:
            async with listening(*ears):
                first.publish("before")
                await until(lambda: all(ear.ids == ["before"] for ear in others))
                await channel.lose()
                await until(lambda: all(ear.syncer.counts.lost for ear in ears))
                first.publish("while it was away")
                first.publish("and another")
                await channel.mend()
                await until(lambda: all(ear.gaps == 2 for ear in ears), lambda: [ear.gaps for ear in ears])
                first.publish("after")
                await until(lambda: all("after" in ear.ids for ear in others), lambda: [ear.ids for ear in others])
                others[0].publish("from another")
                await until(lambda: first.ids == ["from another"])
        assert {line["log_level"] for line in logs} == {"warning", "info"}
        assert all(line["why"] and line["next_step"] for line in logs if line["log_level"] == "warning")

    async def test_it_does_not_start_while_the_server_is_away_and_leaves_nothing_behind(self, channel: Between) -> None:
        before = asyncio.all_tasks()
        ear = Ear(channel.syncer("i1"))
        await channel.lose()
        try:
            with pytest.raises(Retryable):
                await ear.start()
        finally:
            await channel.mend()
        assert asyncio.all_tasks() == before
        assert ear.gaps == 0
        async with listening(ear):
            assert ear.gaps == 1

    async def test_a_start_whose_first_look_fails_leaves_nothing_behind(self, channel: Between) -> None:
        class Unlucky(Ear):
            async def on_gap(self, answer: Answer) -> None:
                raise Retryable("storage", "away", "wait")

        before = asyncio.all_tasks()
        with pytest.raises(Retryable, match="storage"):
            await Unlucky(channel.syncer("i1")).start()
        assert asyncio.all_tasks() == before
        await self.nobody_is_connected(channel)

    async def test_stop_sends_what_was_published_and_leaves_nothing_behind(self, channel: Between) -> None:
        before = asyncio.all_tasks()
        first, second = joined(channel, 2)
        await second.start()
        await first.start()
        first.publish("last words")
        await first.syncer.stop()
        await until(lambda: second.ids == ["last words"])
        await second.syncer.stop()
        assert asyncio.all_tasks() == before
        await self.nobody_is_connected(channel)

    async def test_who_stopped_can_start_again(self, channel: Between) -> None:
        first, second = joined(channel, 2)
        async with listening(first, second):
            await second.syncer.stop()
            first.publish("unheard")
            await second.start()
            first.publish("heard")
            await until(lambda: "heard" in second.ids)
            second.publish("answer")
            await until(lambda: first.ids == ["answer"])
            assert second.gaps == 2

    async def test_publishing_nothing_says_nothing(self, channel: Between) -> None:
        first, second = joined(channel, 2)
        async with listening(first, second):
            first.syncer.publish([])
            first.publish("x")
            await until(lambda: second.deltas)
            assert second.ids == ["x"]

    async def nobody_is_connected(self, channel: Between) -> None:
        async with asyncio.timeout(10):
            while await channel.connections():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


class ServerSuite(SyncSuite):
    async def test_a_listener_whose_connection_was_cut_hears_of_a_gap(self, channel: Served) -> None:
        first, second, third = ears = joined(channel, 3)
        with capture_logs() as logs:
            async with listening(*ears):
                for times in range(1, 4):
                    assert await channel.cut("listen") == 3
                    await until(lambda times=times: all(ear.gaps == times + 1 for ear in ears), lambda: [e.gaps for e in ears])
                    first.publish(f"after {times}")
                    await until(lambda times=times: second.ids == third.ids == [f"after {n}" for n in range(1, times + 1)])
        assert {line["log_level"] for line in logs} == {"warning", "info"}

    async def test_what_could_not_be_sent_is_sent_again_and_is_no_gap(self, channel: Served) -> None:
        first, second = joined(channel, 2)
        with capture_logs():
            async with listening(first, second):
                first.publish("opens the connection")
                await until(lambda: second.deltas)
                assert await channel.cut("tell") == 1
                session = first.publish("a", "b")
                await until(lambda: second.ids[1:] == ["a", "b"], lambda: second.ids)
                second.publish("opens it, too")
                await until(lambda: first.deltas)
                assert await channel.cut("tell") == 2
                second.syncer.ack(Ack(session, second.name, 7))
                await until(lambda: first.acks)
                assert [ack.revision for ack in first.acks] == [7]
                assert (first.gaps, second.gaps) == (1, 1)
