"""`make prove`: the tests of docs/reliability.md at full scale, and their figures."""
