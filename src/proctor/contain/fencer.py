"""Standalone program that sets up fences as mounts and then executes another program, for machines without bwrap.

Usage, inside the new mount namespace that unshare made: `fencer.py NETWORK CWD [FENCE PATH]... -- PROGRAM ARGUMENT...`.
NETWORK and FENCE are values of `Network` and `Fence`. If NETWORK is `unchanged`, only the given rules are applied: the
rest of the file system stays writable, and root keeps its capabilities, which an agent's own sandbox needs. The file is
run by path and imports nothing from Proctor.
"""

import ctypes
import os
import signal
import sys

_MS_BIND, _MS_REC = 0x1000, 0x4000
_MS_NOSUID_NODEV = 0x2 | 0x4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_READ_ONLY = 0x1
_SYS_MOUNT_SETATTR = 442  # the same on every architecture
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITIES_V3 = 0x20080522
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    end = arguments.index("--")
    network, cwd, rules, argv = arguments[0], arguments[1], arguments[2:end], arguments[end + 1 :]
    if network == "none":
        raise_loopback()
    is_hiding_only = network == "unchanged"
    raise_fences(list(zip(rules[::2], rules[1::2], strict=True)), is_hiding_only=is_hiding_only)
    if not is_hiding_only:
        drop_capabilities()
    elif os.geteuid() != 0:
        # Only this program got them, to mount.
        clear_capabilities()
    # The inherited working directory refers to the file system before the mounts.
    os.chdir(cwd)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores these two signals, and an executed program would inherit that.
        signal.signal(number, signal.SIG_DFL)
    os.execv(argv[0], argv)  # noqa: S606


def raise_fences(rules: list[tuple[str, str]], *, is_hiding_only: bool) -> None:
    # Opened before anything is hidden: a bind mount from a descriptor still works after its path has been covered.
    sources = {path: os.open(path, os.O_PATH) for fence, path in rules if fence != "hidden"}
    nothing = os.open("/dev/null", os.O_PATH)
    if not is_hiding_only:
        set_read_only("/", is_read_only=True)
        replace_devices()
    for fence, path in rules:
        if fence != "hidden":
            bind(sources[path], path)
        elif os.path.isfile(path):  # noqa: PTH113
            bind(nothing, path)
        else:
            hide(path)
            continue
        set_read_only(path, is_read_only=fence != "writable")
    for descriptor in (*sources.values(), nothing):
        os.close(descriptor)


def replace_devices() -> None:
    devices = {path: os.open(path, os.O_PATH) for name in _DEVICES if os.path.exists(path := f"/dev/{name}")}  # noqa: PTH110
    hide("/dev")
    for path, descriptor in devices.items():
        bind(descriptor, path)
        os.close(descriptor)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")  # noqa: PTH211
    os.mkdir("/dev/shm", 0o1777)  # noqa: PTH102, S108


def hide(path: str) -> None:
    os.makedirs(path, exist_ok=True)  # noqa: PTH103
    check(_libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", _MS_NOSUID_NODEV, b"mode=0755"), path)


def bind(descriptor: int, path: str) -> None:
    source = f"/proc/self/fd/{descriptor}"
    if not os.path.lexists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        os.makedirs(path) if os.path.isdir(source) else os.close(os.open(path, os.O_CREAT))  # noqa: PTH103, PTH112
    check(_libc.mount(os.fsencode(source), os.fsencode(path), None, _MS_BIND | _MS_REC, None), path)


def set_read_only(path: str, *, is_read_only: bool) -> None:
    attributes = (ctypes.c_uint64 * 4)(*((_READ_ONLY, 0) if is_read_only else (0, _READ_ONLY)), 0, 0)
    mount_point = ctypes.c_char_p(os.fsencode(path))
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    result = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, mount_point, _AT_RECURSIVE, ctypes.byref(attributes), size)
    check(result, path)


def raise_loopback() -> None:
    # Imported only when needed, for a shorter start, and before the fences can hide these modules.
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def drop_capabilities() -> None:
    """Drop all capabilities for good. A program that kept one of them could undo every fence."""
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    clear_capabilities()


def clear_capabilities() -> None:
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, empty_sets = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)()
    check(_libc.capset(header, empty_sets), "capabilities")


def check(result: int, subject: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.stderr.write(f"proctor-fencer: {error.filename or sys.argv[2]}: {error.strerror}\n")
        sys.exit(126)
