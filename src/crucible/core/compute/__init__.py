"""Offers of machines, their cost, and the choice of an offer for a job."""
