#!/bin/sh
# Whether this machine has what the set-up cannot install by itself: Python >= 3.10 with its headers
# and venv, and a C compiler. If not, says so and gives the one line to type.
#
#     sh tools/check_machine.sh [PYTHON]

python=${1:-python3}
compiler=${CC:-cc}
missing=

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    missing="Python 3.10 or newer (as $python)"
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    missing="Python's venv module"
elif ! "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'; then
    missing="Python's C headers"
elif ! echo '#include <stdio.h>' | $compiler -E -x c - >/dev/null 2>&1; then
    missing="a C compiler (as $compiler)"
fi
[ -z "$missing" ] && exit 0

if command -v apt-get >/dev/null; then
    line="apt-get install -y python3-dev python3-venv gcc"
elif command -v dnf >/dev/null; then
    line="dnf install -y python3-devel gcc"
elif command -v brew >/dev/null; then
    line="brew install python"
else
    line="xcode-select --install"
fi
case $line in
apt-get* | dnf*) [ "$(id -u)" = 0 ] || line="sudo $line" ;;
esac
echo "mlxops needs $missing, which is not here. Type:" >&2
echo "    $line" >&2
exit 1
