#!/bin/sh
# Whether this machine has what the set-up cannot install by itself: Python >= 3.10 with its headers
# and venv, and a C compiler. If not, says so and gives the one line to type.
#
#     sh tools/check_machine.sh [PYTHON]

python=${1:-python3}
missing=

configured() {
    "$python" -c "import sysconfig; print(sysconfig.$1)"
}

compiles() {
    echo '#include <stdio.h>' | $1 -E -x c - >/dev/null 2>&1
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    missing="Python 3.10 or newer (as $python)"
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    missing="Python's venv module"
elif [ ! -e "$(configured 'get_paths()["include"]')/Python.h" ]; then
    missing="Python's C headers"
else
    compiler=${CC:-$(configured 'get_config_var("CC")')} # what Python builds extensions with
    compiles "$compiler" || missing="a C compiler (as '$compiler')"
fi
[ -z "$missing" ] && exit 0

if [ -n "$CC" ] && ! compiles "$CC" && compiles cc; then
    line="unset CC"
elif command -v apt-get >/dev/null; then
    line="apt-get update && apt-get install -y python3-dev python3-venv gcc"
    [ "$(id -u)" = 0 ] || line="sudo sh -c '$line'"
elif command -v dnf >/dev/null; then
    line="dnf install -y python3-devel gcc"
    [ "$(id -u)" = 0 ] || line="sudo $line"
elif [ "${missing#a C}" != "$missing" ] || ! command -v brew >/dev/null; then
    line="xcode-select --install"
else
    line="brew install python"
fi
echo "mlxops needs $missing, which is not here. Type:" >&2
echo "    $line" >&2
exit 1
