"""Connections to backends: rows of the database, from which every process makes its backends."""
