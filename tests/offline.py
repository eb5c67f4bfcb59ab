"""Runs a command in a network namespace with only loopback up, where this machine allows it, and says so where not."""

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1


def cut_off() -> None:
    """OSError where it is not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


if __name__ == "__main__":
    try:
        cut_off()
        sys.stderr.write("offline: only loopback can be reached\n")
    except OSError as error:
        sys.stderr.write(f"not cut off from the network here ({error.strerror}); the agents' own switches must do\n")
    os.execvp(sys.argv[1], sys.argv[1:])
