"""Submit, find, label, resume and show jobs."""
