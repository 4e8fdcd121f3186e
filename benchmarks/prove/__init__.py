"""`make prove`: the proofs of docs/reliability.md at their full size, and the figures that they leave."""
