"""How long lists of many jobs take over HTTP, filter by filter, and how long a submission does beside them."""
