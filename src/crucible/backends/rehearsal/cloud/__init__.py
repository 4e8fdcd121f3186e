"""A simulated cloud: a separate program whose machines are processes of this computer.

It plays a provider, so it shares nothing with the program that rents from it: it imports only the standard library
and itself (relative imports, so that it also runs by path), keeps its own state, and meters and bills by its own
arithmetic. Tests can therefore check our costs against its bill.
"""
