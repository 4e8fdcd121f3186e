"""Backup, restore, retention and pruning."""
