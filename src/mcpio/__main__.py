"""``python -m mcpio``: the command line."""

import sys

from mcpio.cli import main

if __name__ == "__main__":
    sys.exit(main())
