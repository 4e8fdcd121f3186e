"""Speed of lists of many jobs over HTTP, filter by filter, and of a submission to such a database."""
