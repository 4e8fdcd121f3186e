"""Writing to the terminal: tables, live lines, formatted values."""
