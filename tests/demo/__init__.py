"""The demonstration: what it shows, that it says what is simulated, and that nothing of it is left."""
