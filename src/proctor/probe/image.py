"""Read a PNG that a product made, within bounds, and compute its difference hash. Needs Pillow."""

import io
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_IMAGE_BYTES: Final = 16 * 1024 * 1024
MAX_IMAGE_SIDE: Final = 10_000
"""Most pixels of a side."""
MAX_PIXELS: Final = 25_000_000
"""Most pixels of an image: decoded it takes 4 bytes for each."""
BLANK_SHARE: Final = 0.0001
"""An image is blank if fewer of its pixels than this share differ from its most common colour."""
BLANK_DIFFERENCE: Final = 8
"""How much of 255 a colour must differ in red, green or blue to count as another one."""

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEADER: Final = struct.Struct(">8s4x4sII")
_COLUMNS, _ROWS = 8, 8
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, KeyError, IndexError, TypeError, struct.error, zlib.error)


class ImageError(ValueError):
    """Bytes that are not an image that can be judged. Says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSummary:
    """What is compared of an image."""

    width: int
    height: int
    hash: int
    """The difference hash, 64 bits."""
    is_blank: bool


def read_size(data: bytes) -> tuple[int, int]:
    """Return width and height from the header alone. Raises ImageError if they are out of bounds or it is not a PNG.

    >>> read_size(b"GIF89a")
    Traceback (most recent call last):
    proctor.probe.image.ImageError: it is not a PNG image
    """
    if len(data) < _HEADER.size:
        raise ImageError("it is not a PNG image")
    signature, chunk, width, height = _HEADER.unpack_from(data)
    if signature != _SIGNATURE or chunk != b"IHDR" or not width or not height:
        raise ImageError("it is not a PNG image")
    if max(width, height) > MAX_IMAGE_SIDE or width * height > MAX_PIXELS:
        raise ImageError(f"it has {width} × {height} pixels, which is too large")
    return width, height


def summarize(data: bytes) -> ImageSummary:
    """Decode an image and return what is compared of it. Raises ImageError. Call it in a thread."""
    if len(data) > MAX_IMAGE_BYTES:
        raise ImageError(f"it is larger than {MAX_IMAGE_BYTES // 1024**2} MiB")
    width, height = read_size(data)
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            if image.size != (width, height):
                raise ImageError("it is not a PNG image")
            flat = _flatten(image)
    except ImageError:
        raise
    except _BROKEN as error:
        raise ImageError("it is a broken PNG image") from error
    return ImageSummary(width=width, height=height, hash=_difference_hash(flat), is_blank=_is_blank(flat))


def distance(one: ImageSummary, other: ImageSummary) -> int:
    """Return how many of the 64 bits of two hashes differ."""
    return (one.hash ^ other.hash).bit_count()


def _flatten(image: "Image") -> "Image":
    """Return an image in red, green and blue, on white where it is transparent."""
    from PIL import Image

    colours = image.convert("RGBA")
    white = Image.new("RGBA", colours.size, "white")
    return Image.alpha_composite(white, colours).convert("RGB")


def _difference_hash(image: "Image") -> int:
    """Shrink an image to 9 × 8 grey pixels. Each bit says whether a pixel is brighter than its left neighbour."""
    from PIL.Image import Resampling

    grey = image.convert("L").resize((_COLUMNS + 1, _ROWS), Resampling.BOX)
    pixels = grey.tobytes()
    bits = 0
    for row in range(_ROWS):
        for column in range(_COLUMNS):
            at = row * (_COLUMNS + 1) + column
            bits = bits << 1 | (pixels[at + 1] > pixels[at])
    return bits


def _is_blank(image: "Image") -> bool:
    from PIL import Image, ImageChops

    # Coarse colours, of which there are few enough to count.
    coarse = image.quantize(colors=16)
    index = max(range(len(coarse.histogram())), key=coarse.histogram().__getitem__)
    red, green, blue = (coarse.getpalette() or [])[index * 3 : index * 3 + 3]
    common = red, green, blue
    bands = ImageChops.difference(image, Image.new("RGB", image.size, common)).split()
    most = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    different = sum(most.histogram()[BLANK_DIFFERENCE + 1 :])
    return different < BLANK_SHARE * image.width * image.height
