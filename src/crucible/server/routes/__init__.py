"""The routes of the public API, one file for each resource."""
