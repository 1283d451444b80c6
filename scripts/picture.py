"""Pictures of lines and bars as PNG files, with numpy and the standard library alone."""

import struct
import zlib
from pathlib import Path

import numpy as np

Color = tuple[int, int, int]

# Digits of 3 by 5 dots, a row of each in an octal digit.
DIGITS = dict(zip("0123456789", ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71111", "75757", "75717")))


class Picture:
    """Pixels [height, width, 3], of which (0, 0) is the upper left one."""

    def __init__(self, width: int, height: int, background: Color = (255, 255, 255)):
        self.pixels = np.full((height, width, 3), background, np.uint8)

    def box(self, left: int, top: int, right: int, bottom: int, color: Color) -> None:
        """Fills a rectangle; right and bottom do not belong to it. What is outside of the picture is left out."""
        self.pixels[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = color

    def columns(self, left: int, low: np.ndarray, high: np.ndarray, color: Color) -> None:
        """Draws, from left on, a column of pixels from high down to low for each of their elements."""
        for x, (bottom, top) in enumerate(zip(low, high, strict=True), start=left):
            self.box(x, round(top), x + 1, round(bottom) + 1, color)

    def number(self, left: int, top: int, value: int, color: Color, size: int = 2) -> None:
        """Writes a whole number; a dot of a digit is size pixels wide and high."""
        for at, digit in enumerate(str(value)):
            rows = np.array([[int(row) >> bit & 1 for bit in (2, 1, 0)] for row in DIGITS[digit]], bool)
            for y, x in np.argwhere(rows) * size + [top, left + 4 * size * at]:
                self.box(x, y, x + size, y + size, color)

    def save(self, path: Path) -> None:
        height, width, _ = self.pixels.shape
        lines = np.concatenate([np.zeros((height, 1), np.uint8), self.pixels.reshape(height, -1)], axis=1)  # unfiltered
        parts = [
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),  # 8 bits of red, green and blue
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        ]
        with path.open("wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n")
            for kind, data in parts:
                file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
