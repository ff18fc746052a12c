#!/bin/sh
# Installs what a part of the tests needs besides Python and a C compiler, where that is possible
# without asking: as root, with apt-get. Otherwise gives the one line to type.
#
#     sh tools/install_test_tools.sh simulator|emulator

case $1 in
simulator)
    needs="The Metal simulator of the tests needs clang and GCC's Objective-C runtime."
    packages=clang
    found() {
        command -v clang && ls /usr/lib/gcc/*/*/include/objc/objc.h
    }
    ;;
emulator)
    needs="The tests of kernels for other processors need qemu and a compiler for aarch64."
    packages="qemu-user gcc-aarch64-linux-gnu"
    found() {
        command -v qemu-aarch64 && command -v qemu-x86_64 && command -v aarch64-linux-gnu-gcc
    }
    ;;
*)
    echo "usage: sh tools/install_test_tools.sh simulator|emulator" >&2
    exit 2
    ;;
esac

found >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq $packages >/dev/null && found >/dev/null 2>&1 &&
        exit 0
fi
echo "$needs Type:" >&2
echo "    sudo apt-get install -y $packages" >&2
exit 1
