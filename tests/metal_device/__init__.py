"""The Metal device on the simulator: its build, and the tests that only it has."""
