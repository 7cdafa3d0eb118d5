"""Services on this machine for trying out and for tests: Postgres, Redis, Kafka."""
