"""Write a sequence of images to a file: GIF with Pillow, MP4 with FFmpeg.

The format is passed explicitly, because the file is first written under a temporary name.
"""

import importlib
import itertools
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from stormpg.errors import InputError

FASTEST = {".gif": 50.0, ".mp4": 240.0}  # frames per second; viewers play faster GIFs slowly
REST = 1000  # milliseconds that a GIF pauses at the end of an episode
COLOURS = 255  # per frame of a GIF; one more marks unchanged pixels

Film = Iterable[tuple[Image.Image, bool]]  # images, and whether the episode ends with this one


def write_gif(file: Path, frames: Film, fps: float) -> None:
    """Write a GIF. The duration of a frame is rounded to hundredths of a second."""
    pictures = timed(frames, round(100 / fps) * 10)
    next(pictures).save(file, format="GIF", save_all=True, append_images=pictures, loop=0, optimize=True)


def timed(frames: Film, milliseconds: int) -> Iterator[Image.Image]:
    """Yield the images with their durations."""
    for image, over in frames:
        shown = with_palette(image) if image.getcolors(4 * COLOURS) else image  # Pillow's palettes are made for photographs
        shown.info["duration"] = REST if over else milliseconds
        yield shown


def with_palette(image: Image.Image) -> Image.Image:
    """Reduce a drawing to its most frequent colours, so that they are the same in all frames. Others become the nearest."""
    packed = np.asarray(image, np.int64) @ (1 << 16, 1 << 8, 1)
    colours, index, counts = np.unique(packed, return_inverse=True, return_counts=True)
    colours = colours[:, None] >> np.array((16, 8, 0)) & 255
    palette = colours[np.argsort(-counts, kind="stable")[:COLOURS]]
    nearest = ((colours[:, None] - palette) ** 2).sum(axis=-1).argmin(axis=1)
    shown = Image.fromarray(nearest[index].reshape(packed.shape).astype(np.uint8))
    shown.putpalette(palette.astype(np.uint8).tobytes())
    return shown


def write_mp4(file: Path, frames: Film, fps: float) -> None:
    """Write an H.264 video. It needs an even width and height, so an odd last row or column is cropped."""
    pictures = (image.crop((0, 0, image.width // 2 * 2, image.height // 2 * 2)) for image, _ in frames)
    first = next(pictures)
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{first.width}x{first.height}", "-r", f"{fps}", "-i", "-"]
    wanted = ["-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(file)]
    command = [ffmpeg(), "-y", "-v", "error", *given, *wanted]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None  # because of PIPE
        for picture in itertools.chain([first], pictures):
            process.stdin.write(picture.tobytes())
        reason = process.communicate()[1].decode(errors="replace").strip()
    if process.returncode:
        raise OSError(reason)


def ffmpeg() -> str:
    """Return the path of FFmpeg. InputError if it is not installed."""
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError) as error:
        raise InputError(f".mp4 needs FFmpeg ({error}): pip install 'stormpg[video]', or write a .gif.") from None


WRITERS: dict[str, Callable[[Path, Film, float], None]] = {".gif": write_gif, ".mp4": write_mp4}


def writer(file: Path) -> Callable[[Path, Film, float], None]:
    """Return the function that writes files with this extension. InputError if the format is not supported."""
    ending = file.suffix.lower()
    if ending not in WRITERS:
        raise InputError(f"{file} ends in {ending or 'nothing'!r}; expected .gif or .mp4.")
    if ending == ".mp4":
        ffmpeg()
    return WRITERS[ending]
