"""The Metal simulator: Apple's Foundation and Metal on Linux, for the tests (README.md)."""

from metal_sim.simulator import (
    HOME,
    Control,
    MetalSim,
    MetalSimError,
    build,
    check_deployment_target,
    inline_includes,
)

__all__ = [
    "HOME",
    "Control",
    "MetalSim",
    "MetalSimError",
    "build",
    "check_deployment_target",
    "inline_includes",
]
