"""From the lines of a log and the facts of an end to the cause. Pure, with bounded memory, line by line."""
