"""Estimates: how long jobs will take, stored with each job, and how good that was once they have ended."""
