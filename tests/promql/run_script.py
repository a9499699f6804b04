"""`run_script.py FILE...`: runs Prometheus' PromQL test scripts; see `script_runner`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.promrules.script_runner import main

sys.exit(main(sys.argv[1:]))
