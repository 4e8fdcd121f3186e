"""Sessions at a job: commands that run in its surroundings, and connections to the ports it listens on."""

from crucible.agent.sessions.desk import Sessions
from crucible.agent.sessions.surroundings import Surroundings

__all__ = ["Sessions", "Surroundings"]
