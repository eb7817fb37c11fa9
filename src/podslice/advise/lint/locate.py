"""Lines and columns of findings in the files that were given, also where a configuration stands inside another
object."""

from __future__ import annotations

import msgspec

from podslice.advise.lint.model import Finding
from podslice.config.carriers.layer import FieldPlace, Places
from podslice.reading.yaml import Place, Positions


class Locator:
    """Positions in a text. The text is parsed again when a position is first asked for, which files without findings
    are spared."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self._text = text
        self._positions: Positions | None = None

    def locate(self, finding: Finding, document: int, places: Places | None = None) -> Finding:
        """Return a finding with its place: that of its path in a document, or where `places` say that the field of a
        configuration stands."""
        place, path = FieldPlace(document), finding.path
        if places is not None:
            place, path = places.find(finding.path)
        # Files that are not YAML have lines and no columns; their reader has noted the line already.
        line, column = (place.line, 1) if place.line else self._find(place.below(path))
        return msgspec.structs.replace(finding, source=self.source, document=place.document, line=line, column=column)

    def _find(self, place: FieldPlace) -> Place:
        if self._positions is None:
            self._positions = Positions(self._text)
        if not place.text:
            return self._positions.find(place.document, place.path)
        # A kubelet's configuration in a ConfigMap is YAML inside a YAML string: a position in each, put together.
        inside = Positions(place.text).find(place.inner, place.within)
        return self._positions.find_inside(place.document, place.path, inside)
