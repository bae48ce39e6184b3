"""What Spark looks for when it starts: `DefaultSource`, which makes the format `fusee` known without a call.

Spark imports every top-level module named `pyspark_*`; one that raises makes all such sources disappear, so whatever
keeps ours from being imported (no pyarrow, an older Spark) is told as a warning and leaves this module empty.
"""

import warnings

try:
    from fusee.pipeline.source import FuseeSource as DefaultSource

    __all__ = ["DefaultSource"]
except Exception as error:  # noqa: BLE001  the border to Spark, which must not see an exception here
    warnings.warn(f"the Spark source fusee is not registered: {error!r}", ImportWarning, stacklevel=1)
