"""What running jobs report: logs, metric points, health, and the feed of changes."""
