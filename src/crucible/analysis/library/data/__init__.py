"""Datasets, config files and command lines that programs read."""
