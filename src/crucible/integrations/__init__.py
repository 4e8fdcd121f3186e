"""Integrations: webhooks, and the checks of the URLs that users enter for them."""
