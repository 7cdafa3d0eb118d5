"""How a plugin reaches a cluster of brokers: the options that its receiver and its sender have in common."""

from __future__ import annotations

from pydantic import Field

from trunkline.core.scalars import Whole
from trunkline.core.secret import Secret
from trunkline.routes.canonical import content_hash
from trunkline.routes.fields import RouteModel
from trunkline.routes.secrets import Text


class Optional(Text):
    """A text that may be empty."""

    @classmethod
    def mistake(cls, text: str) -> str:
        return ""


NOTHING = Optional.plain("")


class KafkaCluster(RouteModel):
    brokers: Text = Field(
        default=Text.plain("localhost:9092"), description="<host>:<port> of some brokers, with commas between"
    )
    topic: str = Field(min_length=1, max_length=249, examples=["alarms"], description="the topic's name")
    username: Optional = Field(default=NOTHING, description="for SASL; none: no login")
    password: Secret | None = Field(default=None, examples=["secret://kafka.password"], description="for SASL")
    tls_enable: bool = Field(default=False, description="true: over TLS, also without a certificate of our own")
    ca_cert: Optional = Field(default=NOTHING, description="PEM of the authority that checks the brokers' certificates")
    access_cert: Optional = Field(default=NOTHING, description="PEM of our own certificate")
    access_key: Secret | None = Field(default=None, examples=["secret://kafka.key"], description="PEM of its key")
    version: str = Field(default="", description="taken from EARS, without effect: brokers are asked for their version")


def kafka_cluster(config: KafkaCluster) -> str:
    """Topics that are read as one: of the same brokers, by the same login."""
    given = (config.username, config.password, config.ca_cert, config.access_cert, config.access_key)
    login = [secret.shown if secret is not None else "" for secret in given]
    brokers = config.brokers.shown
    return f"{brokers}#{content_hash([config.tls_enable, login])[:8]}" if config.tls_enable or any(login) else brokers


class RedisServer(RouteModel):
    endpoint: Text = Field(default=Text.plain("localhost:6379"), description="<host>:<port> of the server")
    channel: str = Field(default="ears", min_length=1, description="key of the stream")
    username: Optional = Field(default=NOTHING, description="none: the server's default user")
    password: Secret | None = Field(default=None, examples=["secret://redis.password"], description="none: no login")
    database: Whole = Field(default=0, ge=0, le=1_000_000, description="number of the database")
    tls_enable: bool = Field(default=False, description="true: over TLS")
