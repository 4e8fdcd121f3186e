"""Reads a program's files and parses them, even if they are broken."""
