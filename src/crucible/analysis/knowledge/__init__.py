"""Facts about well-known models, datasets, frameworks and optimizers."""
