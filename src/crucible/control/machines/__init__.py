"""Build machines, poll them, count their cost, and make sure that they end.

control/reconcile/effects.py launches them, and derives the nonces with which their hosts claim them.
"""
