#!/bin/sh
# The Metal simulator of the tests needs clang and the Objective-C runtime. Installs them where that
# is possible without asking: as root, with apt-get. Otherwise gives the one line to type.
#
#     sh tools/install_clang.sh

found() {
    command -v clang >/dev/null && ls /usr/lib/gcc/*/*/include/objc/objc.h >/dev/null 2>&1
}

found && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq clang >/dev/null && found && exit 0
fi
echo "The Metal simulator of the tests needs clang and GCC's Objective-C runtime. Type:" >&2
echo "    sudo apt-get install -y clang" >&2
exit 1
