"""The table definitions, by topic. `db/schema.py` exports all of them."""
