"""Commands about backends, offers, prices and machines."""
