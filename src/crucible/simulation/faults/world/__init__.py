"""What exists in the simulated world: cloud, machines, runners, network, people."""
