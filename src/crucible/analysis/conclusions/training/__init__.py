"""Models, optimizers, batches, lengths and checkpoints."""
