"""The library: what the command does, called from Python, with tables in and tables out.

Nothing is printed, the process stays as it was, and several calls may go on side by side in threads.
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

# Of a kernel without widgets, whose bars nobody asked for
warnings.filterwarnings("ignore", "IProgress not found")
