"""The shell round the core: database, reconcile, effects, ingest, sweep and janitor."""
