"""The command line: one module per command group, loaded when its command is used."""
