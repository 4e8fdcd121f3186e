"""Routing: rank the offers that can hold a job by the user's objective, with the cost and finish time of the whole job,
and say why each of the others cannot run it. Pure and deterministic.
"""
