"""How a process is fenced: the files and the network that it can reach."""

from enum import StrEnum


class Network(StrEnum):
    """Which network a fenced process can reach."""

    NONE = "none"
    """Only a private loopback interface."""

    HOST = "host"
    """The network of this machine."""


class Contain(StrEnum):
    """Whether a process is fenced."""

    FENCED = "fenced"
    """It can write only to its own folders, and cannot see the user's home folder."""

    NONE = "none"
    """It has access to all files and to the network."""
