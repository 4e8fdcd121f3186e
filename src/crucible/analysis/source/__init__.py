"""The files of a program, parsed, also where they are broken."""
