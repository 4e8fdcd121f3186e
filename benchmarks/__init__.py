"""Long runs that are made on demand, and what they measured."""
