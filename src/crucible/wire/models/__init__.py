"""Model plugins and the options of their configs."""
