"""The main job under fault: links cut, supervisors killed, servers that die, two at once."""
