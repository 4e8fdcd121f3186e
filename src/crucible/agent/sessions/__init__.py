"""Sessions at a job: commands that run in its surroundings, and connections to the ports it listens on."""

from crucible.agent.sessions.endpoint import JobContext
from crucible.agent.sessions.manager import SessionManager

__all__ = ["JobContext", "SessionManager"]
