"""A simulated cloud: a program of its own whose machines are processes of this computer.

It stands for a provider, so it shares nothing with the program that rents from it: it imports the standard
library and itself (relative imports, so that it runs by path too), keeps its own state, and meters and bills
by its own arithmetic. Its bill is a witness, not an echo.
"""
