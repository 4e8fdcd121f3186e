"""Place queued jobs on the slots and machines that each backend offers now."""
