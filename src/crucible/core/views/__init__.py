"""All responses of the API, described once: the server builds and documents them with these views, the client parses
them with the same ones.

Fields have defaults, so that a client also reads the responses of an older server; unknown fields are kept, so that
`--json` prints a newer server's response in full. The OpenAPI document promises more: every field that is not marked
with `sometimes` is present. Annotations are evaluated here: as texts, pydantic would compile them one by one each time
a command starts.
"""
