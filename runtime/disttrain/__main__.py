"""`python -m disttrain` is the command `disttrain`."""

import sys

from disttrain.cli.main import main

sys.exit(main())
