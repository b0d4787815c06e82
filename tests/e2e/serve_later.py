"""`serve_later.py SECONDS ARGUMENT...`: `maniple` with a clock that is ahead, so that tests need not wait."""

import sys
import time

ahead_s, now = float(sys.argv.pop(1)), time.time
time.time = lambda: now() + ahead_s

from maniple.cli.main import main  # noqa: E402 - with that clock

main()
