"""Who asks, from where, and how much they may ask."""
