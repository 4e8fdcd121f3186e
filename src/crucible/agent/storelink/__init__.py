"""The store channel's side of the agent: see `crucible.wire.mailbox` for what lies where."""
