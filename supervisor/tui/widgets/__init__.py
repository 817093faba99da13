"""The console's widgets, one a file. They are given attributes; none subscribes, sleeps or does I/O."""
