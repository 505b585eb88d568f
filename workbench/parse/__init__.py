"""Text to typed records. Pure: nothing here opens a file, and nothing raises on any text."""
