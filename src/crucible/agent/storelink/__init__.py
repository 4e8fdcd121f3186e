"""The agent's side of the store channel; `crucible.wire.documents.mailbox` describes the objects."""
