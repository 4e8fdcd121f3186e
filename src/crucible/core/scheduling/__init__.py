"""The scheduler's decisions: which waiting job starts where, and why another one waits.

`schedule` is the whole of it, a pure function of the state: the queue, the offers and what is in use on each node.
control/scheduling reads the state and carries the decisions out.
"""
