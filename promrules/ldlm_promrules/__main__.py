"""The command `promrules`, also as `python -m ldlm_promrules`."""

import sys

from ldlm_promrules.command import main

if __name__ == "__main__":
    sys.exit(main())
