"""Keras: layers, weights, data and shapes."""
