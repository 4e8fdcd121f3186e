"""Routing: of all offers those that could hold a job, best first for what its owner wants, each with what the whole
job would cost there and when it would be done; and why the others are none. Pure and deterministic.
"""
