"""The control plane under a seeded virtual world."""
