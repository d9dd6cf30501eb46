"""Whose trouble it is that a connection cannot be made: this machine's, or the other one's."""

from __future__ import annotations

import errno
import socket
import ssl

__all__ = ["is_of_this_machine"]

_OURS = {
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.EADDRNOTAVAIL,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EACCES,
    errno.EPERM,
    errno.ENOENT,
    errno.ENOSPC,
    errno.EROFS,
}


def is_of_this_machine(error: BaseException | None) -> bool:
    """Whether it says more of this machine (no sockets left, no network, no resolver) than of the other one.

    It may be what a library made of it: then the first of its causes that bears a number of the system's counts, and of
    several at once all have to be.
    """
    while error is not None:
        if isinstance(error, socket.gaierror):
            return error.errno == socket.EAI_AGAIN
        if isinstance(error, ssl.SSLError):  # whose numbers are its own
            return False
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno in _OURS
        if isinstance(error, BaseExceptionGroup):
            return all(map(is_of_this_machine, error.exceptions))
        error = error.__cause__
    return False
