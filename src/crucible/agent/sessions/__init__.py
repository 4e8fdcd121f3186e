"""Sessions at a running job: commands in its environment, and connections to the ports that it listens on."""

from crucible.agent.sessions.endpoint import JobContext
from crucible.agent.sessions.manager import SessionManager

__all__ = ["JobContext", "SessionManager"]
