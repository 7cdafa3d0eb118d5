"""A fleet on one machine: every site with its own Postgres server, its own processes, and an application that reports."""
