"""The parts of the simulated world: cloud, machines, runners, network, users, servers."""
