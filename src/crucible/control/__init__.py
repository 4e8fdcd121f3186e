"""The shell round the core: database, reconcile, effects, ingest, janitor."""
