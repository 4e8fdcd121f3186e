"""The user's process: how it is started, limited, measured and ended."""
