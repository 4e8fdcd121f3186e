"""Documents that control and agents exchange."""
