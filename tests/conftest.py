"""What every test shares: the devices, the independent reference, the demo model, fixed seeds."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from which_build import SIMULATED  # isort: split

import mlxops as mo
from canonical_reference import CanonicalReference
from float_environment import FloatEnvironment

REPOSITORY = Path(__file__).parent.parent

# What the developer has tuned is not used here, nor in the processes that tests start.
os.environ["MLXOPS_TUNING"] = ""

if SIMULATED:
    import metal_sim

    CONTROL = metal_sim.build().control()
    # What is tested by itself, and with the shipped build, which has the CUDA device.
    collect_ignore = ["metal_sim", "test_neon.py", "test_notebooks.py", "cuda"]
elif platform.system() == "Linux" and platform.machine() == "x86_64":
    collect_ignore = ["metal_device"]
else:
    collect_ignore = ["metal_device", "metal_sim"]
    if platform.system() != "Linux":
        collect_ignore += ["cuda/test_cuda_device.py", "cuda/test_cuda_core.py"]

# On the simulated GPU, threads and threadgroups run in ascending and in descending order.
REVERSED = "metal reversed"
DEVICES = [device.name for device in mo.devices()] + [REVERSED] * SIMULATED

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a device: every test that takes it runs on each one."""
    if not SIMULATED:
        yield str(request.param)
        return
    CONTROL.set_reverse(request.param == REVERSED)
    yield str(request.param).split()[0]
    CONTROL.set_reverse(False)


@pytest.fixture
def keeps_subnormals(device: str) -> None:
    """For tests of float32 subnormals: an Apple GPU may flush them; all others keep them."""
    if device == "metal" and not SIMULATED:
        pytest.skip("a GPU may flush float32 subnormals to zero: the one exception to equal bits")


@pytest.fixture(autouse=True)
def obeys_metal() -> Iterator[None]:
    """Whatever a test does, the simulated Metal has nothing to complain of."""
    yield
    if SIMULATED:
        reports, in_flight = CONTROL.reports(), CONTROL.in_flight()
        CONTROL.reset()
        assert reports == ""
        assert in_flight == 0


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> CanonicalReference:
    """The canonical order from a C file of its own."""
    return CanonicalReference(tmp_path_factory.mktemp("canonical_order"))


@pytest.fixture(scope="session")
def float_environment(tmp_path_factory: pytest.TempPathFactory) -> FloatEnvironment:
    """The rounding direction and flush-to-zero of the calling thread."""
    return FloatEnvironment(tmp_path_factory.mktemp("float_environment"))


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(20230815)


@pytest.fixture
def restore_threads() -> Iterator[None]:
    """Puts the number of threads back after a test that sets it."""
    before = mo.get_num_threads()
    yield
    mo.set_num_threads(before)


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The GGUF file of the demo, fetched where it is missing."""
    fetch = REPOSITORY / "examples" / "fetch_model.py"
    if not any(REPOSITORY.glob("models/*.gguf")):
        run = subprocess.run([sys.executable, str(fetch)], capture_output=True, text=True)
        if run.returncode != 0 or not any(REPOSITORY.glob("models/*.gguf")):
            pytest.fail(
                "these tests need the demo's model in models/; in the repository's root type\n"
                f"    {sys.executable} {fetch.relative_to(REPOSITORY)}\n{run.stdout}{run.stderr}"
            )
    return min(REPOSITORY.glob("models/*.gguf"))
