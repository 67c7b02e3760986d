"""Stopping without losing: a request to end after the current chunk, and what is raised when everything has ended.

A request comes from a signal, from an error in one of several blocks of runs, from `progress`, or from the study that a
training is a part of. Nothing is interrupted in the middle: each block ends its chunk, what was done is kept, and only then is
the error raised, with the partial result on it.
"""

import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

WAKE = 0.2  # seconds between two looks of a waiting thread


class Terminated(SystemExit):
    """SIGTERM came. It is raised when what was done is kept; nobody catches it by accident, and it ends the process."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class Halted(RuntimeError):
    """A part of a study was stopped before its end, because the whole study is."""


class Stop:
    """A request to stop, for all threads that work on one call."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.error: BaseException | None = None

    def request(self, error: BaseException | None = None) -> None:
        """Everybody ends after the current chunk. The first error given is the one that is raised in the end."""
        if self.error is None:
            self.error = error
        self.event.set()

    def __bool__(self) -> bool:
        return self.event.is_set() or (_study is not None and _study.event.is_set())

    def finish(self, result: Any) -> None:
        """Everybody has ended: raise the error that stopped them, if one did, with what was done as its `result`."""
        error = self.error or (Halted("the study was stopped") if _study is not None and _study.event.is_set() else None)
        if error is not None:
            with contextlib.suppress(AttributeError):  # an exception that takes no attributes
                error.result = result  # type: ignore[attr-defined]
            raise error


_study: Stop | None = None  # that of the study this process is working on


@contextlib.contextmanager
def whole_study(stop: Stop) -> Iterator[None]:
    """While it lasts, every training of this process ends when `stop` is requested."""
    global _study
    before, _study = _study, stop
    try:
        yield
    finally:
        _study = before


@contextlib.contextmanager
def listening(stop: Stop, at_once: bool = False) -> Iterator[None]:
    """While it lasts, SIGINT and SIGTERM are requests to stop; the second one is raised at once.

    Only in place of Python's own handlers, and only in the main thread: a handler of the caller's stays.
    `at_once`: the first one is raised, too, where whoever works cannot see the request.
    """
    usual = {signal.SIGINT: (signal.default_int_handler,), signal.SIGTERM: (signal.SIG_DFL, terminate)}
    main = threading.current_thread() is threading.main_thread()
    now: dict[int, Any] = {number: signal.getsignal(number) for number in usual}
    ours = [number for number, handlers in usual.items() if main and now[number] in handlers]

    def note(number: int, frame: Any) -> None:
        error = KeyboardInterrupt() if number == signal.SIGINT else Terminated()
        again = stop.event.is_set()
        stop.request(error)
        if again or at_once:
            raise error

    for number in ours:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, now[number])


def completed(futures: Iterable[Future]) -> Iterator[Future]:
    """As `concurrent.futures.as_completed`, but signals are seen while it waits.

    Python runs a signal's handler in the main thread when that looks. One that comes to another thread, or just before the
    main thread falls asleep, does not wake it.
    """
    left = set(futures)
    while left:
        done, left = wait(left, WAKE, FIRST_COMPLETED)
        yield from done


def terminate(number: int, frame: object) -> None:
    """The command's handler: outside of a training, SIGTERM does what Ctrl-C does."""
    raise Terminated


def add_note(error: BaseException, note: str) -> None:
    """Say something more at the end of an error: how to resume."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
