"""Nodes of a document: elements, and texts, which are `str`.

A node is a number in an open document. Each question is answered by the document where it lies; nothing is kept but the
content of a text, which is that of the moment when it was asked for.

Invariant: a node keeps the edition of the document that it is a number of, and what is found from there is of that edition.
After `Document.compact`, where numbers mean other nodes, those of before are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from ._errors import Closed
from ._find import Query

if TYPE_CHECKING:
    from ._document import Document
    from ._holdfast import _Document

#: The kinds of nodes, as the format numbers them.
DOCUMENT, DOCTYPE, ELEMENT, TEXT, COMMENT, INSTRUCTION, FRAGMENT = range(1, 8)
#: The number of the node that holds all others.
ROOT = 1
#: What a reader of a page does not see.
UNSEEN = ["script", "style"]
#: Attributes that are lists of words, by element ("*": any).
LISTS = {
    "*": {"class", "accesskey", "dropzone"},
    "a": {"rel", "rev"},
    "area": {"rel"},
    "form": {"accept-charset"},
    "icon": {"sizes"},
    "iframe": {"sandbox"},
    "link": {"rel", "rev"},
    "object": {"archive"},
    "output": {"for"},
    "td": {"headers"},
    "th": {"headers"},
}


def wrap(document: Document, native: _Document, found: tuple[int, int]) -> Element | Text:
    """The node of this number and kind in an edition of a document."""
    number, kind = found
    if kind == DOCUMENT:
        return document
    if kind in (ELEMENT, FRAGMENT):
        return document._element(native, number)
    classes: dict[int, type[Text]] = {TEXT: Text, COMMENT: Comment}
    return classes.get(kind, _Other)._of(document, native, number)


def _wrap_any(document: Document, native: _Document, found: tuple[int, int] | None) -> Element | Text | None:
    return None if found is None else wrap(document, native, found)


class _Linked:
    """What all nodes have: neighbours, and a place that can be changed."""

    __slots__ = ()

    _page: Document
    #: The edition that it is in; of a document, which lasts longer, the newest.
    _native: _Document
    _id: int

    @property
    def _document(self) -> Document:
        return self._page

    @property
    def parent(self) -> Element | None:
        """The element around it, or the document."""
        node = _wrap_any(self._document, self._native, self._native.parent(self._id))
        return node if isinstance(node, Element) else None

    @property
    def parents(self) -> Iterator[Element]:
        """The element around it, the one around that, and so on, up to the document."""
        native = self._native
        for found in native.ancestors(self._id):
            node = wrap(self._document, native, found)
            if isinstance(node, Element):
                yield node

    @property
    def next_sibling(self) -> Element | Text | None:
        """The node behind it."""
        return _wrap_any(self._document, self._native, self._native.next_sibling(self._id))

    @property
    def previous_sibling(self) -> Element | Text | None:
        """The node before it."""
        return _wrap_any(self._document, self._native, self._native.previous_sibling(self._id))

    @property
    def next_siblings(self) -> Iterator[Element | Text]:
        """The nodes behind it."""
        native = self._native
        siblings, at = self._siblings(native)
        yield from (wrap(self._document, native, one) for one in siblings[at + 1 :])

    @property
    def previous_siblings(self) -> Iterator[Element | Text]:
        """The nodes before it, the nearest first."""
        native = self._native
        siblings, at = self._siblings(native)
        yield from (wrap(self._document, native, one) for one in reversed(siblings[:at]))

    def _siblings(self, native: _Document) -> tuple[list[tuple[int, int]], int]:
        """All that is in its parent, and its place there."""
        parent = native.parent(self._id)
        siblings = [(self._id, native.kind(self._id))] if parent is None else native.children(parent[0])
        return siblings, [number for number, _ in siblings].index(self._id)

    def extract(self) -> Self:
        """Takes the node, with what is in it, out of the tree, and returns it. It can be put elsewhere."""
        self._native.detach(self._id)
        return self

    def decompose(self) -> None:
        """Takes the node, with what is in it, out of the tree. Its room comes back with `Document.compact`."""
        self._native.detach(self._id)

    def insert_before(self, *nodes: Element | Text | str) -> None:
        """Puts nodes, or new texts, before this one: all of them, or none."""
        native = self._native
        with self._document._together(nodes):
            for node in nodes:
                self._document._place(native, node, None, self._id)

    def insert_after(self, *nodes: Element | Text | str) -> None:
        """Puts nodes, or new texts, behind this one: all of them, or none."""
        native = self._native
        with self._document._together(nodes):
            for node in reversed(nodes):
                parent, behind = native.parent(self._id), native.next_sibling(self._id)
                if parent is not None and behind is None:
                    self._document._place(native, node, parent[0], None)
                else:
                    # Before itself, what has no parent is refused.
                    self._document._place(native, node, None, self._id if behind is None else behind[0])

    def replace_with(self, *nodes: Element | Text | str) -> Self:
        """Puts nodes, or new texts, in the place of this one, and returns this one."""
        with self._document.transaction():
            self.insert_before(*nodes)
            return self.extract()


class Text(_Linked, str):
    """A text in a document: a `str` with neighbours. It is what the text was when it was asked for."""

    @classmethod
    def _of(cls, document: Document, native: _Document, number: int, content: str | None = None) -> Self:
        text = cls(native.data(number) or "" if content is None else content)
        text._page = document
        text._native = native
        text._id = number
        return text

    @property
    def name(self) -> None:
        """A text has no name."""
        return None

    @property
    def text(self) -> str:
        """The text, as a plain `str`."""
        return str(self)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # A copy for another process is a text.
        return str, (str.__str__(self),)


class Comment(Text):
    """A comment."""


class _Other(Text):
    """A document type, or a processing instruction."""


def joined(texts: Iterable[str], separator: str, strip: bool) -> str:
    if strip:
        texts = (text.strip() for text in texts)
        texts = (text for text in texts if text)
    return separator.join(texts)


class Element(_Linked):
    """An element of a document. Equal to another one if it is the same node of the same document."""

    __slots__ = ("_id", "_native", "_page", "__weakref__")

    def __init__(self, document: Document, native: _Document, number: int) -> None:
        self._page = document
        self._native = native
        self._id = number

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Element):
            return NotImplemented
        return self._id == other._id and self._native is other._native

    def __hash__(self) -> int:
        return hash((id(self._document), self._id))

    def __bool__(self) -> bool:
        return True

    @property
    def name(self) -> str | None:
        """Its name, in lower case if it is of HTML."""
        return self._native.name(self._id)

    @property
    def namespace(self) -> str | None:
        """The address of its namespace."""
        return self._native.namespace(self._id)

    # Attributes.

    @property
    def attributes(self) -> dict[str, str]:
        """Its attributes as they are now, each one text, as a copy."""
        return dict(self._native.attributes(self._id))

    def _as_list(self, name: str, value: str) -> str | list[str]:
        is_list = name in LISTS["*"] or name in LISTS.get(self.name or "", ())
        return value.split() if is_list else value

    def __getitem__(self, name: str) -> str | list[str]:
        return self._as_list(name, self.attributes[name])

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, as a list if it is one of words; or `default`."""
        value = self.attributes.get(name)
        return default if value is None else self._as_list(name, value)

    def __setitem__(self, name: str, value: str | Iterable[str]) -> None:
        text = value if isinstance(value, str) else " ".join(value)
        self._native.set_attribute(self._id, name, text)

    def __delitem__(self, name: str) -> None:
        self._native.remove_attribute(self._id, name)

    # The tree.

    @property
    def contents(self) -> list[Element | Text]:
        """What is directly in it."""
        native = self._native
        return [wrap(self._document, native, found) for found in native.children(self._id)]

    def __iter__(self) -> Iterator[Element | Text]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self._native.children(self._id))

    def __contains__(self, node: object) -> bool:
        return any(node is one or node == one for one in self.contents)

    @property
    def descendants(self) -> Iterator[Element | Text]:
        """What is in it, in the order of the document; not what templates hold."""
        native = self._native
        for found in native.descendants(self._id):
            yield wrap(self._document, native, found)

    @property
    def template_contents(self) -> Element | None:
        """What a template holds."""
        node = _wrap_any(self._document, self._native, self._native.template_contents(self._id))
        return node if isinstance(node, Element) else None

    # Text.

    def get_text(self, separator: str = "", strip: bool = False) -> str:
        """The text in it, but not that of scripts and styles in it; `separator`: between texts; `strip`: white space around each taken
        away, and what is empty then left out."""
        texts = self._native.texts(self._id, UNSEEN)
        return joined((text for _, text in texts), separator, strip)

    @property
    def strings(self) -> Iterator[Text]:
        """The texts in it, but not those of scripts and styles in it."""
        native = self._native
        for number, text in native.texts(self._id, UNSEEN):
            yield Text._of(self._document, native, number, text)

    @property
    def string(self) -> Text | None:
        """The only text in it, if there is nothing beside it; storing to it puts a text in the place of all that is in it."""
        node: Element | Text = self
        while isinstance(node, Element):
            contents = node.contents
            if len(contents) != 1:
                return None
            node = contents[0]
        return node

    @string.setter
    def string(self, text: str) -> None:
        self._native.set_text(self._id, text)

    # Searching.

    def select(self, selector: str, limit: int | None = None) -> list[Element]:
        """The elements in it that match a CSS selector, in the order of the document; `limit`: no more than that.

        Raises `SelectorError`, which says where.
        """
        native = self._native
        found = native.select(self._id, selector, limit == 1)
        return [self._document._element(native, number) for number in found[:limit]]

    def select_one(self, selector: str) -> Element | None:
        """The first element in it that matches."""
        return next(iter(self.select(selector, limit=1)), None)

    def matches(self, selector: str) -> bool:
        """Whether this element matches."""
        return self._native.closest(self._id, selector) == self._id

    def closest(self, selector: str) -> Element | None:
        """This element, or the nearest around it, that matches."""
        number = self._native.closest(self._id, selector)
        return None if number is None else self._document._element(self._native, number)

    def find_all(
        self,
        name: Any = None,
        attrs: Mapping[str, Any] | str = {},
        recursive: bool = True,
        *,
        limit: int | None = None,
        **keywords: Any,
    ) -> list[Element]:
        """The elements in it of this name and with these attributes, in the order of the document.

        A name, and an attribute, is a `str`, a pattern of `re`, a function, `True` (any), or a list of these; an attribute also
        `None` (it has none). `class_` is the class: one of them, or all as one text. `recursive=False`: directly in it. A function as a name
        gets the element.
        """
        query = Query(name, attrs, keywords)
        native, names = self._native, query.names()
        if recursive:
            numbers = native.elements(self._id, names)
        else:
            numbers = [number for number, kind in native.children(self._id) if kind == ELEMENT]
        found = []
        for number in numbers:
            element = self._document._element(native, number)
            if query.takes(element, recursive and names is not None):
                found.append(element)
                if limit is not None and len(found) >= limit:
                    break
        return found

    def find(
        self, name: Any = None, attrs: Mapping[str, Any] | str = {}, recursive: bool = True, **keywords: Any
    ) -> Element | None:
        """The first element that `find_all` finds."""
        return next(iter(self.find_all(name, attrs, recursive, limit=1, **keywords)), None)

    def find_parent(self, name: Any = None, attrs: Mapping[str, Any] | str = {}, **keywords: Any) -> Element | None:
        """The nearest element around it of this name and with these attributes."""
        query = Query(name, attrs, keywords)
        return next((one for one in self.parents if one.name is not None and query.takes(one, False)), None)

    # As HTML.

    @property
    def html(self) -> str:
        """It and what is in it as HTML, as browsers write it."""
        return self._native.html(self._id, False)

    @property
    def inner_html(self) -> str:
        """What is in it as HTML."""
        return self._native.html(self._id, True)

    def __str__(self) -> str:
        return self.html

    def __repr__(self) -> str:
        try:
            attributes = "".join(f" {name}={value!r}" for name, value in self.attributes.items())
            return f"<holdfast.Element {self.name}{attributes}>"
        except Closed:
            return "<holdfast.Element of a closed document>"

    # Changes.

    def append(self, node: Element | Text | str) -> None:
        """Puts a node, or a new text, behind all that is in it."""
        self._document._place(self._native, node, self._id, None)

    def extend(self, nodes: Iterable[Element | Text | str]) -> None:
        """Puts several there: all of them, or none."""
        several = list(nodes)
        with self._document._together(several):
            for node in several:
                self.append(node)

    def clear(self) -> None:
        """Takes out all that is in it."""
        self._native.set_text(self._id, "")
