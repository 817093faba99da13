"""The console: Textual on the same stream as headless. The only place where textual is imported."""
