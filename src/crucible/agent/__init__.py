"""The agent: our program on a machine, one host and one runner per attempt. Python 3.9, standard library only."""
