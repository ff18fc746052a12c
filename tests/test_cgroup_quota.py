"""The quota of the process's cgroup limits the number of threads: made-up cgroups in a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "csrc"
CPUS = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prints the number of threads, for cgroups in the folder `cgroups` beside it."""
    folder = tmp_path_factory.mktemp("cgroup_quota")
    root, process = f'"{folder}/cgroups"', f'"{folder}/process"'
    command = [*os.environ.get("CC", "cc").split(), "-std=c11", "-D_GNU_SOURCE", f"-I{SOURCES}"]
    command += [f"-DCGROUP_ROOT={root}", f"-DCGROUPS_OF_PROCESS={process}"]
    files = ["cpu/thread_count.c", "status.c"]
    main = Path(__file__).parent / "c" / "print_num_threads.c"
    target = folder / "program"
    command += [str(main), *(str(SOURCES / file) for file in files), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


def num_threads(program: Path, process: str, files: dict[str, str], **environment: str) -> int:
    """What the program prints for a /proc/self/cgroup and files of cgroups."""
    (program.parent / "process").write_text(process)
    for name, content in files.items():
        path = program.parent / "cgroups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    try:
        run = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    finally:
        for name in files:
            (program.parent / "cgroups" / name).unlink()
    return int(run.stdout)


V2 = "0::/job/step\n"
V1 = "5:memory:/other\n4:cpu,cpuacct:/job/step\n1:name=systemd:/\n"


@pytest.mark.parametrize(
    ("process", "files", "expected"),
    [
        (V2, {}, None),
        (V2, {"job/step/cpu.max": "max 100000\n"}, None),
        (V2, {"job/step/cpu.max": "100000 100000\n"}, 1),
        (V2, {"job/step/cpu.max": "50000 100000\n"}, 1),
        (V2, {"job/step/cpu.max": "100001 100000\n"}, 2),
        (V2, {"job/step/cpu.max": "99999999999 100000\n"}, None),
        (V2, {"job/cpu.max": "100000 100000\n"}, 1),
        (V2, {"cpu.max": "100000 100000\n"}, 1),
        (V2, {"job/step/cpu.max": "max 100000\n", "job/cpu.max": "100000 100000\n"}, 1),
        (V2, {"job/step/cpu.max": "nonsense\n"}, None),
        (V2, {"other/cpu.max": "100000 100000\n"}, None),
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        (
            V1,
            {"cpu/job/step/cpu.cfs_quota_us": "-1\n", "cpu/job/step/cpu.cfs_period_us": "9\n"},
            None,
        ),
        (V1, {"cpu/job/step/cpu.cfs_quota_us": "7\n", "cpu/job/step/cpu.cfs_period_us": "9\n"}, 1),
        (V1, {"cpu/job/cpu.cfs_quota_us": "9\n", "cpu/job/cpu.cfs_period_us": "9\n"}, 1),
        (V1, {"cpu/job/step/cpu.cfs_quota_us": "7\n"}, None),
        ("", {"cpu.max": "100000 100000\n"}, None),
        ("no colons\n:\n::\n", {}, None),
    ],
)
def test_quota(program: Path, process: str, files: dict[str, str], expected: int | None) -> None:
    expected = CPUS if expected is None else min(expected, CPUS)
    assert num_threads(program, process, files) == expected


def test_the_environment_goes_first(program: Path) -> None:
    files = {"job/step/cpu.max": "100000 100000\n"}
    assert num_threads(program, V2, files, MLXOPS_NUM_THREADS="3") == 3
