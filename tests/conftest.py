"""Ctrl-C reaches the programs that tests start, also where a shell has turned it off for tests in the background."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
