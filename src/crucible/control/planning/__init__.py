"""Read programs, rank offers, and predict how long jobs take."""
