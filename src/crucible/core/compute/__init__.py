"""What can be rented or used, what it costs, and which offer a job gets."""
