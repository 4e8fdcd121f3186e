"""Webhooks of projects: their rows, their messages and their delivery."""

from crucible.control.hooks.notifier import Notifier
from crucible.control.hooks.sender import Sender, WebhookTransport
from crucible.control.resources.hooks import Hooks

__all__ = ["Hooks", "Notifier", "Sender", "WebhookTransport"]
