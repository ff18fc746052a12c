#!/usr/bin/env bash
# The CUDA device on a machine with an NVIDIA GPU. Needs a C compiler, and for PYTHON (python3)
# NumPy, setuptools, pytest and hypothesis; downloads nothing. Parts, by default all:
#
#     tests/cuda/gpu_check.sh [bits] [suite] [memcheck] [racecheck] [times]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
parts=${*:-bits suite memcheck racecheck times}

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
CFLAGS=-Werror "$python" -m pip install --quiet --no-build-isolation --no-deps --no-index \
    --target "$site" .
export PYTHONPATH=$site:$PWD/tests PYTHONUNBUFFERED=1
"$python" -c 'import mlxops as mo; print(mo.devices()); mo.set_default_device("cuda")'

for part in $parts; do
    echo "== $part"
    case $part in
    bits) "$python" tests/cuda/small_shapes.py ;;
    # Every test of the operations that takes a device, on this one; and the choice of the device.
    suite) "$python" -m pytest -q -p no:cacheprovider -k "cuda and not metal" tests/test_*.py ;;
    memcheck | racecheck)
        compute-sanitizer --tool "$part" --error-exitcode 9 "$python" tests/cuda/small_shapes.py
        ;;
    # Whole calls, with NumPy arrays in and out, beside the CPU.
    times) "$python" -m mlxops selftest ;;
    *)
        echo "no part is called $part" >&2
        exit 2
        ;;
    esac
done
