#!/usr/bin/env bash
# The CUDA device on a machine with an NVIDIA GPU. Needs a C compiler, and for PYTHON (python3)
# NumPy, gguf, setuptools, pytest and hypothesis; downloads nothing. Parts, by default all:
#
#     tests/cuda/gpu_check.sh [bits] [suite] [memcheck] [racecheck] [tune] [times]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
parts=${*:-bits suite memcheck racecheck tune times}

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
    suite)
        without=()
        if ! compgen -G 'models/*.gguf' >/dev/null; then
            echo "without the tests of the demo's model, which is not here (examples/fetch_model.py)"
            without=(--deselect tests/test_accuracy.py
                --deselect tests/test_gguf.py::test_the_demo_model)
        fi
        "$python" -m pytest -q -p no:cacheprovider -k "cuda and not metal" "${without[@]}" \
            tests/test_*.py
        ;;
    memcheck | racecheck)
        compute-sanitizer --tool "$part" --error-exitcode 9 "$python" tests/cuda/small_shapes.py
        ;;
    tune) MLXOPS_TUNING=$site/tuning.json "$python" -m mlxops tune ;;
    times) "$python" benchmarks/cuda.py ;;
    *)
        echo "no part is called $part" >&2
        exit 2
        ;;
    esac
done
