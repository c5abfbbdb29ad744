"""A folder of gray images of one size: one image per row, sorted by name."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from relunmd._util import need
from relunmd.errors import FileError, RelunmdError
from relunmd.io.npy_format import Array
from relunmd.io.readers.bounds import Bounds, check_regular
from relunmd.io.readers.contents import Entry

_SUFFIXES = {".png", ".pgm", ".pbm", ".pnm", ".tif", ".tiff", ".bmp", ".gif", ".jpg", ".jpeg"}
_FORMATS = ("PNG", "PPM", "TIFF", "BMP", "GIF", "JPEG")
_MOST_PIXELS = 1 << 26
_BYTES_A_PIXEL = {"1": 3, "L": 3, "I;16": 4, "I;16B": 4, "I;16L": 4, "I": 8, "F": 8}
"""Memory for decoding, by the mode of the image: Pillow's copy, its copy in another mode, and ours."""
_MOST_BYTES_A_PIXEL = 12
"""For all other modes: four bytes in the image's mode, four as RGBA, and four for a channel and its comparison."""


def image_files(folder: Path) -> list[Path]:
    """Return the images of a folder, sorted by name with numbers in numeric order."""

    def key(file: Path) -> list[tuple[bool, int, str]]:
        parts = re.findall(r"[0-9]{1,18}|[^0-9]+", file.name)
        return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]

    found = (file for file in folder.iterdir() if file.suffix.lower() in _SUFFIXES and not file.name.startswith("."))
    return sorted(found, key=key)


def image_entries(folder: Path, bounds: Bounds) -> list[Entry]:
    """Describe the images as rows of pixels."""
    files = image_files(folder)
    bounds = Bounds(folder, sum(file.stat().st_size for file in files if file.is_file()))
    first = _pixels(files[0], bounds)
    pixels, dtype = first.shape, first.dtype
    shape = len(files), first.size
    del first  # It is read again, so that it is not in memory twice.

    def load() -> Array:
        kept = shape[0] * shape[1] * dtype.itemsize
        bounds.memory(kept, f"{shape[0]} images of {pixels[1]} × {pixels[0]}")
        X = np.empty(shape, dtype)
        for row, file in zip(X, files, strict=True):
            image = _pixels(file, bounds, kept)
            if image.shape != pixels or image.dtype != dtype:
                expected = f"the {pixels[1]} × {pixels[0]} pixels of {dtype} of {files[0].name}"
                found = f"{image.shape[1]} × {image.shape[0]} of {image.dtype}"
                raise FileError(f"{file} must have {expected}. It has {found}.")
            row[:] = image.ravel()
        return X

    return [Entry("", shape, str(dtype), load, pixels=(pixels[0], pixels[1]))]


def _pixels(file: Path, bounds: Bounds, kept: int = 0) -> Array:
    """Return the gray values of an image; colors are accepted if they are shades of gray.

    The memory for decoding, in addition to `kept` bytes, is checked before the image is decoded.
    """
    Image = need("PIL.Image", f"{file} is an image; it needs", "images")
    check_regular(file)
    try:
        with Image.open(file, formats=_FORMATS) as image:
            size = image.width * image.height
            if size > _MOST_PIXELS:
                raise FileError(f"{file} must have at most {_MOST_PIXELS} pixels. It has {size}.")
            each = _BYTES_A_PIXEL.get(image.mode, _MOST_BYTES_A_PIXEL)
            bounds.memory(kept + each * size, f"decoding {file.name} of {image.width} × {image.height} pixels")
            frames = getattr(image, "n_frames", 1)
            if frames > 1:
                raise FileError(f"{file} must be one image. It has {frames} frames.")
            if image.mode in ("1", "L"):
                return np.asarray(image.convert("L"))
            if image.mode.startswith(("I", "F")):
                return np.asarray(image)
            return _gray(file, image.convert("RGBA"))
    except (RelunmdError, MemoryError):
        raise
    except Exception as reason:  # A damaged image makes the decoders raise various exceptions.
        raise FileError(f"{file} is not an image or is damaged: {reason}.") from reason


def _gray(file: Path, image: Any) -> Array:
    """Return the values of an RGBA image in shades of gray, comparing one channel at a time to save memory."""
    gray: Array = np.asarray(image.getchannel("R"))
    colored = any((np.asarray(image.getchannel(name)) != gray).any() for name in ("G", "B"))
    if colored or image.getchannel("A").getextrema() != (255, 255):
        raise FileError(f"{file} must be gray. It has colors or transparent pixels; convert it first.")
    return gray
