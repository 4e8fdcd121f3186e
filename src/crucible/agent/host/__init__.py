"""The host: one process per machine that claims it and forks a runner for each assignment."""
