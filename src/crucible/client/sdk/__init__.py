"""The Python client: MLPlatform, Job, and what they return."""
