"""The store channel's side of the agent: see `crucible.wire.documents.mailbox` for what lies where."""
