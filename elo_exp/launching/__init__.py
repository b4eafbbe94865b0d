"""From the words of a command to a finished run: composing, checking, running, and the jobs of a sweep."""
