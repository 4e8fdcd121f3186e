"""One host per machine: claims it, and forks a runner for each assignment."""
