"""What is in the store, and the rows that say so."""
