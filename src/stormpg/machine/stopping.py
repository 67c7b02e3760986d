"""Stopping without losing results: a request to stop after the current chunk, and the error that is raised afterwards.

A request comes from a signal, from an error in one of several blocks of runs, from `progress`, or from the study that a
training belongs to. No chunk is interrupted: each block finishes its current chunk, the results are kept, and only then is the
error raised, with the partial result in its attribute `result`.
"""

import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

Done = TypeVar("Done")

WAKE = 0.2  # seconds after which a waiting thread checks for signals


class Terminated(SystemExit):
    """SIGTERM was received. Raised after the results are kept; it ends the process.

    As a SystemExit, it is not caught by `except Exception`.
    """

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class Halted(RuntimeError):
    """A part of a study was stopped early, because the whole study is being stopped."""


class Stop:
    """A request to stop, shared by all threads that work on one call."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.error: BaseException | None = None

    def request(self, error: BaseException | None = None) -> None:
        """Ask all threads to stop after the current chunk. The first error given is the one that `finish` raises."""
        if self.error is None:
            self.error = error
        self.event.set()

    def __bool__(self) -> bool:
        return self.event.is_set() or (_study is not None and _study.event.is_set())

    def finish(self, result: Any) -> None:
        """Raise the error that stopped the threads, if any, with `result` as an attribute. Call it after all threads ended."""
        error = self.error or (Halted("the study was stopped") if _study is not None and _study.event.is_set() else None)
        if error is not None:
            with contextlib.suppress(AttributeError):  # some exceptions do not allow attributes
                error.result = result  # type: ignore[attr-defined]
            raise error


_study: Stop | None = None  # the request of the study that this process is working on


@contextlib.contextmanager
def whole_study(stop: Stop) -> Iterator[None]:
    """Inside this context, every training of this process stops when `stop` is requested."""
    global _study
    before, _study = _study, stop
    try:
        yield
    finally:
        _study = before


@contextlib.contextmanager
def listening(stop: Stop, at_once: bool = False) -> Iterator[None]:
    """Inside this context, SIGINT and SIGTERM are requests to stop. A second signal is raised immediately.

    Only Python's default handlers are replaced, and only in the main thread: a handler set by the caller is kept.
    `at_once`: the first signal is also raised immediately. For work that does not check for the request.
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


def completed(futures: Iterable[Future[Done]]) -> Iterator[Future[Done]]:
    """Yield futures as they complete, like `concurrent.futures.as_completed`, but handle signals while waiting.

    Python runs signal handlers only in the main thread. A signal that arrives in another thread, or just before the main
    thread starts to wait, does not wake it.
    """
    left = set(futures)
    while left:
        done, left = wait(left, WAKE, FIRST_COMPLETED)
        yield from done


def terminate(number: int, frame: object) -> None:
    """The SIGTERM handler of the command: outside a training, SIGTERM raises an exception, as Ctrl-C does."""
    raise Terminated


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error once, for example how to resume."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
