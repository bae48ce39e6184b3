"""The `fusee` command: its exit codes, its way to say what went wrong. The commands are in `tree`.

Exit codes: 0 done, 1 the operation failed, 2 the command line or configuration is wrong, 130 interrupted.
"""

from __future__ import annotations

import gc
import sys

from fusee.cli.plain_command import serve_options
from fusee.errors import ConfigError, FuseeError, MessageError

_START_THRESHOLD = 100_000
"""Objects made between two looks for garbage while modules are loaded, which leaves none."""


def main() -> None:
    """Run the command line; an error that a user can mend is told in one line, without a trace."""
    gc.set_threshold(_START_THRESHOLD)
    try:
        options = serve_options(sys.argv[1:])
        if options is None:
            from fusee.cli.tree import app

            app()
        else:
            from fusee.cli.everything import serve_everything

            serve_everything(options)
    except FuseeError as error:
        from fusee.cli.render import tell_error

        tell_error(error)
        sys.exit(2 if isinstance(error, (ConfigError, MessageError)) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
