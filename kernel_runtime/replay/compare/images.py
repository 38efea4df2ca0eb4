"""Images by their pixels.

Two files with equal pixels are one picture, whatever program and time they name (`image-metadata`). Pixels
that differ by less than anybody sees, as two builds of a rasterizer make them, may pass too
(`image-perceptual`); its bound is stated in the rule. Size and number of frames never differ.

Without Pillow, images are compared by their bytes, and the difference says so. So are images that cannot be
read, and those of more than 25 million pixels.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings
from typing import Any

from kernel_runtime.replay.compare.bridge import Bridge

_MAX_PIXELS = 25_000_000
_MAX_FRAMES = 200
_FAINT = 2
"""levels of 255 that any number of pixels may differ by: rounding of a decoder"""
_MODES = frozenset(("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX"))
"""modes that RGBA holds without loss"""
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
"""what a notebook shows; the reader of PostScript starts a program, and no output is to be trusted"""
_SPACE = re.compile(r"\s+")
_UNREADABLE = "the image cannot be read, so its bytes were compared"


def compare(bridge: Bridge, recorded: str, replayed: str) -> None:
    """Hold two images (base64) against each other; the bridge is told what differs."""
    if recorded == replayed:
        return
    one, two = _bytes(recorded), _bytes(replayed)
    if one is None or two is None:
        bridge.differ(_size(recorded), _size(replayed), why="not base64, compared as text")
        return
    if one == two:
        return  # base64 broken into lines elsewhere
    if not bridge.on("image-metadata"):
        bridge.differ(_size(one), _size(two), why="other bytes; rule image-metadata is off")
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            why, found = _pixels(bridge, one, two)
    except ImportError:
        why, found = (
            "Pillow is not installed, so bytes were compared: pip install 'kernel-runtime[replay]'",
            {},
        )
    if why:
        bridge.differ(_size(one), _size(two), why=why, **found)


def _bytes(encoded: str) -> bytes | None:
    try:
        return base64.b64decode(_SPACE.sub("", encoded), validate=True)
    except (binascii.Error, ValueError):
        return None


def _size(data: str | bytes) -> str:
    return f"{len(data)} {'bytes' if isinstance(data, bytes) else 'characters'}"


def _pixels(bridge: Bridge, one: bytes, two: bytes) -> tuple[str, dict[str, Any]]:
    """Why the pictures differ, empty if they do not, and by how much."""
    from PIL import Image

    try:
        first, second = (Image.open(io.BytesIO(data), formats=_FORMATS) for data in (one, two))
        if first.size != second.size:
            return _sizes(first.size, second.size)
        frames = getattr(first, "n_frames", 1), getattr(second, "n_frames", 1)
        if frames[0] != frames[1]:
            return f"{frames[0]} frames are {frames[1]}", {"frames": list(frames)}
        if first.width * first.height * frames[0] > _MAX_PIXELS or frames[0] > _MAX_FRAMES:
            return "too large to be compared by pixels, so bytes were compared", {}
        for frame in range(frames[0]):
            first.seek(frame)
            second.seek(frame)
            why, found = _frames(bridge, first, second)
            if why:
                return why, {**found, **({"frame": frame} if frames[0] > 1 else {})}
    except (OSError, ValueError, SyntaxError, EOFError, ArithmeticError, LookupError, TypeError) as error:
        # what Pillow's readers raise on broken files; MemoryError is the machine's
        return f"{_UNREADABLE} ({type(error).__name__})", {}
    except Image.DecompressionBombError:
        return "too large to be compared by pixels, so bytes were compared", {}
    bridge.use("image-metadata", _size(one), _size(two))
    return "", {}


def _sizes(one: tuple[int, int], two: tuple[int, int]) -> tuple[str, dict[str, Any]]:
    return (
        f"{one[0]}x{one[1]} pixels are {two[0]}x{two[1]}",
        {"size": [list(one), list(two)]},
    )


def _frames(bridge: Bridge, first: Any, second: Any) -> tuple[str, dict[str, Any]]:
    from PIL import ImageChops, ImageOps

    one, two = ImageOps.exif_transpose(first), ImageOps.exif_transpose(second)
    if one.size != two.size:
        return _sizes(one.size, two.size)
    if not (one.mode in _MODES and two.mode in _MODES):
        if one.mode != two.mode:
            return f"mode {one.mode} is {two.mode}", {}
        return ("", {}) if one.tobytes() == two.tobytes() else (f"pixels of mode {one.mode} differ", {})
    one, two = one.convert("RGBA"), two.convert("RGBA")
    if one.tobytes() == two.tobytes():
        return "", {}
    gap = ImageChops.difference(one, two)
    # the largest channel of each pixel, without going over pixels in Python
    red, green, blue, alpha = gap.split()
    worst = ImageChops.lighter(ImageChops.lighter(red, green), ImageChops.lighter(blue, alpha))
    counts = worst.histogram()
    largest = max(level for level, count in enumerate(counts) if count)
    total = one.width * one.height
    differing = total - counts[0]
    beyond = sum(counts[_FAINT + 1 :])
    rules = bridge.rules
    if (
        bridge.on("image-perceptual")
        and largest <= rules.image_levels
        and (largest <= _FAINT or beyond <= rules.image_share * total)
    ):
        bridge.use("image-perceptual", f"{differing} of {total} pixels", f"by {largest} of 255 at most")
        return "", {}
    box = worst.getbbox()
    return (
        f"{differing} of {total} pixels ({100 * differing / total:.3g} %) differ, by up to {largest} of 255",
        {"pixels": differing, "of": total, "largest": largest, "box": list(box) if box else None},
    )
