"""Which mlxops is tested: the installed one, or with MLXOPS_TEST_BUILD=simulated one that has the
Metal device as well, on the simulator. Imported before mlxops itself."""

import os

SIMULATED = os.environ.get("MLXOPS_TEST_BUILD") == "simulated"

if SIMULATED:
    from metal_device import simulated_build

    simulated_build.install()
