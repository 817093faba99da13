"""The headless front end: waits, prints, exits. Never imports the console, never prompts."""
