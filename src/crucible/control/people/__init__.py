"""People: users, projects, tokens, and the record of what they did."""

from crucible.control.people.desk import People
from crucible.control.people.tokens import identified

__all__ = ["People", "identified"]
