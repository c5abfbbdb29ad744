"""A folder of grey images of one size: one image a row, in the order of their names."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd._util import need
from relunmd.errors import FileError, RelunmdError
from relunmd.io.readers.bounds import Bounds, check_regular
from relunmd.io.readers.contents import Entry

__all__ = ["image_entries", "image_files"]

Array = NDArray[Any]
_SUFFIXES = {".png", ".pgm", ".pbm", ".pnm", ".tif", ".tiff", ".bmp", ".gif", ".jpg", ".jpeg"}
_FORMATS = ("PNG", "PPM", "TIFF", "BMP", "GIF", "JPEG")
_MOST_PIXELS = 1 << 26
_BYTES_A_PIXEL = {"1": 3, "L": 3, "I;16": 4, "I;16B": 4, "I;16L": 4, "I": 8, "F": 8}
"""What decoding takes: Pillow's own copy, its copy in another mode, and ours; by the image's mode."""
_MOST_BYTES_A_PIXEL = 12
"""For all others: four bytes each in the image's mode and as RGBA, and four for a channel and its comparison."""


def image_files(folder: Path) -> list[Path]:
    """The images of a folder, numbers in their names in the order of numbers."""
    found = [file for file in folder.iterdir() if file.suffix.lower() in _SUFFIXES and not file.name.startswith(".")]
    return sorted(found, key=lambda file: [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
                                           for part in re.findall(r"[0-9]{1,18}|[^0-9]+", file.name)])  # fmt: skip


def image_entries(folder: Path, bounds: Bounds) -> list[Entry]:
    """The images as rows of pixels."""
    files = image_files(folder)
    first = _pixels(files[0], bounds)
    pixels, dtype = (first.shape[0], first.shape[1]), first.dtype
    shape = len(files), first.size
    del first  # It is read again, so that it is not there twice.

    def load() -> Array:
        kept = shape[0] * shape[1] * dtype.itemsize
        bounds.memory(kept, f"{shape[0]} images of {pixels[1]} × {pixels[0]}")
        X = np.empty(shape, dtype)
        for row, file in zip(X, files, strict=True):
            image = _pixels(file, bounds, kept)
            if image.shape != pixels or image.dtype != dtype:
                raise FileError(
                    f"The images in {folder} must have one size and depth. {files[0].name} has "
                    f"{_told(pixels, dtype)} and {file.name} {_told(image.shape, image.dtype)}."
                )
            row[:] = image.ravel()
        return X

    return [Entry("", shape, str(dtype), load, pixels=pixels)]


def _told(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"{shape[1]} × {shape[0]} pixels of {dtype}"


def _pixels(file: Path, bounds: Bounds, kept: int = 0) -> Array:
    """The gray values of an image; colors are accepted if they are shades of gray.

    What decoding it takes besides the `kept` bytes of others is checked before it is decoded.
    """
    Image = need("PIL.Image", f"{file} is an image; it needs", "images")
    check_regular(file)
    try:
        with Image.open(file, formats=_FORMATS) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise FileError(
                    f"{file} has {image.width} × {image.height} pixels; a row must have at most {_MOST_PIXELS}."
                )
            each = _BYTES_A_PIXEL.get(image.mode, _MOST_BYTES_A_PIXEL)
            bounds.memory(
                kept + each * image.width * image.height, f"to decode {file.name}, {image.width} × {image.height},"
            )
            frames = getattr(image, "n_frames", 1)
            if frames > 1:
                raise FileError(f"{file} must be one image. It has {frames} frames.")
            if image.mode in ("1", "L"):
                return np.asarray(image.convert("L"))
            if image.mode.startswith(("I", "F")):
                return np.asarray(image)
            grey = _grey(image.convert("RGBA"))
    except (RelunmdError, MemoryError):
        raise
    except Exception as reason:  # A damaged image makes the decoders raise all sorts of things.
        raise FileError(f"{file} must be an image. Reading it gave: {reason}.") from reason
    if grey is None:
        raise FileError(
            f"{file} must be grey. It has colours or transparent pixels (mode {image.mode}); convert it first."
        )
    return grey


def _grey(image: Any) -> Array | None:
    """The values of an RGBA image that has shades of gray alone; one channel at a time, to take less memory."""
    grey: Array = np.asarray(image.getchannel("R"))
    if any((np.asarray(image.getchannel(name)) != grey).any() for name in ("G", "B")):
        return None
    return grey if image.getchannel("A").getextrema() == (255, 255) else None
