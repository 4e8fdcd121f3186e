"""Facts about what programs name: models, datasets, frameworks, optimizers."""
