"""Drawings as PNG, for tickets and chats that show no SVG. Needs the extra `png`."""

from __future__ import annotations

from podslice.extras import install_extra
from podslice.render.theme import FONT
from podslice.values.errors import InputError

ZOOM = 2
"""Pixels of the image for each of the drawing, so that numbers stay sharp on dense screens."""
_PROBE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
    '<text y="18" font-size="18" font-family="{font}">{text}</text></svg>'
)


def to_png(svg: str) -> bytes:
    """Return an SVG drawing as PNG, on light paper.

    Raises `InputError` where the extra is not installed or the machine has no font for the texts.
    """
    try:
        import resvg_py
    except ImportError:
        raise InputError(
            "PNG needs the library resvg-py, which is not installed",
            remedy=f"{install_extra('png')}, or write .svg",
        ) from None

    def draw(text: str, zoom: float) -> bytes:
        return resvg_py.svg_to_bytes(svg_string=text, zoom=zoom, sans_serif_family="DejaVu Sans")

    # The library leaves out texts for which it finds no font, without an error.
    if draw(_PROBE.format(font=FONT, text="8"), 1) == draw(_PROBE.format(font=FONT, text=""), 1):
        raise InputError(
            "this machine has no font that the texts of a PNG could be drawn with",
            remedy=f"install one of {FONT.removesuffix(', sans-serif')} (Debian: fonts-dejavu-core), or write .svg",
        )
    return draw(svg, ZOOM)
