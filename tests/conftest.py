"""What a shell may have set that programs which tests start should not inherit, and what it should have set.

Ctrl-C reaches them, also where the shell has turned it off for tests in the background. What they compile is kept, also
where Python is told to keep nothing: hundreds of processes would each compile it again, for half a second. None has
threads for linear algebra: each core has its worker of pytest, and they would wait for each other.
"""

import os
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
