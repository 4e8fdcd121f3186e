"""PyTorch: layers, functions, tensors and their shapes."""
