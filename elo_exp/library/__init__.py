"""The Python library: the experiments of the command as functions that take and return tables.

A call prints nothing and leaves the process as it was. Several threads may call it at the same time.
"""

import warnings

from elo_exp.library.calls import audit as audit
from elo_exp.library.calls import compare as compare
from elo_exp.library.calls import open_run as open_run
from elo_exp.library.calls import plan as plan
from elo_exp.library.calls import rate as rate
from elo_exp.library.calls import run as run
from elo_exp.library.results import Plan as Plan
from elo_exp.library.results import Run as Run

# A kernel without widgets warns about progress bars that elo_exp does not use
warnings.filterwarnings("ignore", "IProgress not found")
