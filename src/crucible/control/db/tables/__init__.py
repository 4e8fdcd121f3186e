"""The tables, by what they are about; `db/schema.py` shows them all."""
