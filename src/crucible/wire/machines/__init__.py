"""The folder of a machine whose processes are ours to start and end: on this computer, and on an ssh host."""
