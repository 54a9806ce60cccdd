"""Documents for programs that were written for BeautifulSoup or selectolax.

    from holdfast.compat import Document

`Document` and `Element` are those of `holdfast`, which have most calls of BeautifulSoup already, with
the other names that such programs use. A new program needs none of them.

What it must not do: anything that `holdfast.Document` cannot. Each name here forwards to one there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from . import _document, _nodes
from ._nodes import TEXT, Text, joined

__all__ = ["Document", "Element", "ElementText"]


class ElementText(str):
    """The text of an element, as BeautifulSoup's `text`. Calling it is `Node.text()` of selectolax."""

    _element: _nodes.Element

    def __call__(self, deep: bool = True, separator: str = "", strip: bool = False) -> str:
        """All text in the element, scripts included; `deep=False`: only its own; `separator`: between
        texts; `strip`: removes white space around each text, and empty texts."""
        element = self._element
        native = element._native
        if deep:
            return joined((text for _, text in native.texts(element._id, [])), separator, strip)
        own = [number for number, kind in native.children(element._id) if kind == TEXT]
        return joined((native.data(number) or "" for number in own), separator, strip)

    def __copy__(self) -> Self:
        # It never changes.
        return self

    def __deepcopy__(self, memo: dict[int, Any], /) -> Self:
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # A copy for another process is a text.
        return str, (str.__str__(self),)


class Element(_nodes.Element):
    """An element with the names of both packages."""

    __slots__ = ()

    # BeautifulSoup.

    @property
    def attrs(self) -> dict[str, str | list[str]]:
        """`attributes`, with lists of words (`class`, `rel`, ...) as lists."""
        return {name: self._as_list(name, value) for name, value in self.attributes.items()}

    def has_attr(self, name: str) -> bool:
        """`name in element.attributes`."""
        return name in self.attributes

    @property
    def children(self) -> Iterator[_nodes.Element | Text]:
        """`iter(element.contents)`."""
        return iter(self.contents)

    @property
    def text(self) -> ElementText:
        """`get_text()`; when called, `text(deep=True, separator="", strip=False)`: with scripts."""
        text = ElementText(self.get_text())
        text._element = self
        return text

    @property
    def stripped_strings(self) -> Iterator[str]:
        """`strings` without white space around them; empty ones are left out."""
        stripped = (text.strip() for text in self.strings)
        return (text for text in stripped if text)

    def decode(self) -> str:
        """`html`."""
        return self.html

    def encode(self, encoding: str = "utf-8") -> bytes:
        """`html` as bytes."""
        return self.html.encode(encoding)

    def decode_contents(self) -> str:
        """`inner_html`."""
        return self.inner_html

    # selectolax.

    @property
    def tag(self) -> str | None:
        """`name`."""
        return self.name

    @property
    def id(self) -> str | None:
        """`attributes.get("id")`."""
        return self.attributes.get("id")

    def css(self, query: str) -> list[_nodes.Element]:
        """`select(query)`."""
        return self.select(query)

    def css_first(self, query: str, default: Any = None, strict: bool = False) -> Any:
        """`select_one(query)`, or `default`; with `strict`, `ValueError` if several match."""
        several = self.select(query, limit=None if strict else 1)
        if len(several) > 1:
            raise ValueError(f"{len(several)} elements match {query!r}; strict allows one")
        return several[0] if several else default

    def css_matches(self, selector: str) -> bool:
        """Whether an element in it matches."""
        return self.select_one(selector) is not None


class Document(Element, _document.Document):
    """A document whose elements have the names of both packages."""

    __slots__ = ()

    _element_type = Element

    def tags(self, name: str) -> list[_nodes.Element]:
        """`find_all(name)`."""
        return self.find_all(name)
