"""Hooks of projects: who has which, what they are told, and telling them."""

from crucible.control.hooks.notifier import Notifier
from crucible.control.hooks.sender import Sender, WebhookTransport
from crucible.control.resources.hooks import Hooks

__all__ = ["Hooks", "Notifier", "Sender", "WebhookTransport"]
