"""A folder of grey images of one size: one image a row, in the order of their names."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import FileError
from relunmd.optional import need
from relunmd.readers.bounds import Bounds
from relunmd.readers.contents import Entry

__all__ = ["image_entries", "image_files"]

Array = NDArray[Any]
_SUFFIXES = {".png", ".pgm", ".pbm", ".pnm", ".tif", ".tiff", ".bmp", ".gif", ".jpg", ".jpeg"}
_FORMATS = ("PNG", "PPM", "TIFF", "BMP", "GIF", "JPEG")
_MOST_PIXELS = 1 << 26


def image_files(folder: Path) -> list[Path]:
    """The images of a folder, numbers in their names in the order of numbers."""
    found = [file for file in folder.iterdir() if file.suffix.lower() in _SUFFIXES and not file.name.startswith(".")]
    return sorted(found, key=lambda file: [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
                                           for part in re.findall(r"[0-9]{1,18}|[^0-9]+", file.name)])  # fmt: skip


def image_entries(folder: Path, bounds: Bounds) -> list[Entry]:
    """The images as rows of pixels."""
    files = image_files(folder)
    first = _pixels(files[0])
    shape = len(files), first.size

    def load() -> Array:
        bounds.memory(shape[0] * shape[1] * first.itemsize, f"{shape[0]} images of {first.shape[1]} × {first.shape[0]}")
        X = np.empty(shape, first.dtype)
        for row, file in zip(X, files, strict=True):
            image = _pixels(file)
            if image.shape != first.shape or image.dtype != first.dtype:
                raise FileError(
                    f"The images in {folder} must have one size and depth. {files[0].name} has {_told(first)} and "
                    f"{file.name} {_told(image)}."
                )
            row[:] = image.ravel()
        return X

    return [Entry("", shape, str(first.dtype), load, pixels=first.shape)]


def _told(image: Array) -> str:
    return f"{image.shape[1]} × {image.shape[0]} pixels of {image.dtype}"


def _pixels(file: Path) -> Array:
    """The grey values of an image; colours are let through if they are shades of grey."""
    Image = need("PIL.Image", f"{file} is an image; it needs", "images")
    try:
        with Image.open(file, formats=_FORMATS) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise FileError(
                    f"{file} has {image.width} × {image.height} pixels; a row must have at most {_MOST_PIXELS}."
                )
            frames = getattr(image, "n_frames", 1)
            if frames > 1:
                raise FileError(f"{file} must be one image. It has {frames} frames.")
            if image.mode in ("1", "L"):
                return np.asarray(image.convert("L"))
            if image.mode.startswith(("I", "F")):
                return np.asarray(image)
            colours = np.asarray(image.convert("RGBA"))
    except (FileError, MemoryError):
        raise
    except Exception as reason:  # A damaged image makes the decoders raise all sorts of things.
        raise FileError(f"{file} must be an image. Reading it gave: {reason}.") from reason
    grey: Array = colours[..., 0]
    if (colours[..., :3] != grey[..., None]).any() or (colours[..., 3] != 255).any():
        raise FileError(
            f"{file} must be grey. It has colours or transparent pixels (mode {image.mode}); convert it first."
        )
    return np.ascontiguousarray(grey)
