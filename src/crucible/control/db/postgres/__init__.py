"""The database on a PostgreSQL server that several processes share."""
