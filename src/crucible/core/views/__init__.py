"""Every answer of the API, described once: the server documents them with these, the client reads them into these.

Fields have defaults, so that a client also reads what an older server says; unknown fields are kept, so that a newer
server's answer is printed whole by `--json`. What the document promises is stricter: every field that is not marked
with `sometimes` is there. Annotations are values here: as texts they would be compiled one by one each time a command
starts.
"""
