"""HTML documents: parsed once into a heap, and from then on read, searched and changed where they lie."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ._errors import DocumentError, HeapNotFound
from ._holdfast import Heap, _Document
from ._nodes import ELEMENT, ROOT, Element, Text
from ._types import Size

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._holdfast import Transaction

#: How large a heap is that is made for documents. It takes room as it is filled.
LIMIT: Size = "1GiB"


def _heap_for(
    name: str, *, limit: Size, key: str, home: str | os.PathLike[str] | None, pool: str | os.PathLike[str] | None
) -> Heap:
    """The heap of this name, whatever it holds; a new one is portable, as documents hold no pointers."""
    try:
        return Heap(name, key=key, create=False, home=home, pool=pool)
    except HeapNotFound:
        return Heap(name, limit=limit, key=key, portable=True, home=home, pool=pool)


class Document(Element):
    """An HTML page: `Document.parse` parses one, `Document.open` opens one that was parsed, in microseconds whatever its size.

    A document is its own root element's parent: what an `Element` can be asked, it can be asked for the whole page. Iterating over
    it gives its elements, in their order. It is a context manager; after `close`, every question to it and to its nodes
    raises `Closed`.
    """

    __slots__ = ("_heap", "_owns_heap", "_name")

    #: The type of its elements.
    _element_type: ClassVar[type[Element]] = Element

    _heap: Heap | None
    _owns_heap: bool
    _name: str | None

    def __new__(cls, *_: object, **__: object) -> Self:
        raise TypeError("parse a page with Document.parse, or open one that was parsed with Document.open")

    @classmethod
    def _of(cls, native: _Document, heap: Heap | None, owns_heap: bool, name: str | None) -> Self:
        document = object.__new__(cls)
        document._id = ROOT
        document._native = native
        document._heap = heap
        document._owns_heap = owns_heap
        document._name = name
        return document

    @property
    def _document(self) -> Document:
        # No attribute, so that nothing refers to itself: an abandoned document is gone at once.
        return self

    def _element(self, native: _Document, number: int) -> Element:
        return self._element_type(self, native, number)

    @classmethod
    def parse(
        cls,
        source: str | Buffer | os.PathLike[str],
        *,
        heap: Heap | str | None = None,
        name: str | None = None,
        limit: Size = LIMIT,
        key: str = "default",
        home: str | os.PathLike[str] | None = None,
        pool: str | os.PathLike[str] | None = None,
        scripting: bool = False,
        max_source_bytes: int | None = None,
        max_nodes: int | None = None,
        max_depth: int | None = None,
        max_attributes: int | None = None,
        max_text_bytes: int | None = None,
        max_all_attributes: int | None = None,
        max_names: int | None = None,
        max_token_parts: int | None = None,
    ) -> Self:
        """Parses a page: `str` and bytes are HTML (bytes of UTF-8), a path is a file.

        With `heap`, a `Heap` that is open or the name of one, the page is kept there under `name` (of a file, the file's name unless
        another is given), in the place of the document that had it. Then it is there at the next run, and can be changed. Without, it is in plain
        memory, and can be read. `limit`, `key`, `home` and `pool` are as for `Heap`. `scripting`: as a browser that runs scripts,
        for which the content of `noscript` is text.

        A page is somebody else's: one of more than 64 MiB, 4 million nodes, 2,048 nodes below each other, 1,023 attributes of an
        element, 4 million of all, 16,384 different names, 100,000 spaces and quotes within one tag or 128 MiB of text is
        `DocumentTooLarge` and changes nothing, unless `max_...` says otherwise.
        """
        path: str | os.PathLike[str] | None = None
        data: bytes | None = None
        if isinstance(source, str):
            # Half a pair of UTF-16 is no text.
            data = source.encode("utf-8", "replace")
        elif isinstance(source, bytes):
            data = source
        elif isinstance(source, os.PathLike):
            path = source
        else:
            try:
                data = bytes(memoryview(source))
            except TypeError:
                text = f"a page is HTML, as str or bytes, or a path, not {type(source).__name__}"
                raise TypeError(text) from None
        if heap is not None and not isinstance(heap, (Heap, str)):
            raise TypeError(f"heap is a Heap or the name of one, not {type(heap).__name__}")
        if name is None and path is not None:
            name = PurePath(path).name
        if heap is not None and name is None:
            raise TypeError("a page that is kept in a heap needs a name; give it one: name=...")
        native = _Document.parse(
            data,
            path,
            scripting=scripting,
            source_bytes=max_source_bytes,
            nodes=max_nodes,
            depth=max_depth,
            attributes=max_attributes,
            text_bytes=max_text_bytes,
            all_attributes=max_all_attributes,
            names=max_names,
            token_parts=max_token_parts,
        )
        if heap is None or name is None:
            return cls._of(native, None, False, name)
        opened = _heap_for(heap, limit=limit, key=key, home=home, pool=pool) if isinstance(heap, str) else heap
        try:
            return cls._of(native.keep(opened, name), opened, opened is not heap, name)
        except BaseException:
            if opened is not heap:
                opened.close()
            raise

    @classmethod
    def open(
        cls,
        name: str | None = None,
        *,
        heap: Heap | str,
        read_only: bool = False,
        key: str = "default",
        home: str | os.PathLike[str] | None = None,
        pool: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Opens a document of a heap, a `Heap` that is open or the name of one; without a name the only one that there is.

        With `read_only` any number of processes may have it at a time. Raises `DocumentNotFound`, `DocumentDamaged`, `HeapNotFound`.
        """
        if not isinstance(heap, (Heap, str)):
            raise TypeError(f"heap is a Heap or the name of one, not {type(heap).__name__}")
        opened = heap
        if isinstance(opened, str):
            opened = Heap(opened, key=key, create=False, read_only=read_only, home=home, pool=pool)
        try:
            if name is None:
                names = _Document.names(opened)
                if len(names) != 1:
                    which = f"it has {', '.join(names)}" if names else "it has none"
                    raise DocumentError(f"say which document of the heap {opened.name!r} is meant; {which}")
                name = names[0]
            return cls._of(_Document.open(opened, name), opened, opened is not heap, name)
        except BaseException:
            if opened is not heap:
                opened.close()
            raise

    @staticmethod
    def names(heap: Heap) -> list[str]:
        """The names of the documents of an open heap, sorted. (`del heap[name]` removes one.)"""
        return _Document.names(heap)

    def close(self) -> None:
        """Lets go of the document, and closes its heap if `parse` or `open` has opened that. Closing twice does nothing."""
        self._native.close()
        if self._owns_heap and self._heap is not None:
            self._heap.close()

    @property
    def closed(self) -> bool:
        """Whether it, or its heap, was closed."""
        return self._native.closed or (self._heap is not None and self._heap.closed)

    def __enter__(self) -> Self:
        self._native.kind(ROOT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self._heap is None else f"in the heap {self._heap.name!r}"
        name = "" if self._name is None else f" {self._name!r}"
        return f"<holdfast.Document{name} {where}{' (closed)' if self.closed else ''}>"

    @property
    def heap(self) -> Heap | None:
        """The heap that it is in."""
        return self._heap

    @property
    def document_name(self) -> str | None:
        """Its name in the heap."""
        return self._name

    @property
    def name(self) -> str:
        """`[document]`, which is the name of no element."""
        return "[document]"

    def __iter__(self) -> Iterator[Element]:
        """Its elements, in their order; not what templates hold."""
        native = self._native
        for number in native.elements(ROOT, None):
            yield self._element(native, number)

    @property
    def root(self) -> Element | None:
        """The element that holds all others: `html`."""
        native = self._native
        kinds = native.children(ROOT)
        return next((self._element(native, number) for number, kind in kinds if kind == ELEMENT), None)

    @property
    def head(self) -> Element | None:
        """The element `head`."""
        return self.find("head")

    @property
    def body(self) -> Element | None:
        """The element `body`, or `frameset`."""
        return self.find(["body", "frameset"])

    @property
    def title(self) -> Element | None:
        """The element `title`; its text is `title.string`."""
        return self.find("title")

    @property
    def size_bytes(self) -> int:
        """How large it is in the heap."""
        return self._native.size()[0]

    def check(self) -> None:
        """Looks at every byte that means something; raises `DocumentDamaged`."""
        self._native.check()

    # Changes.

    def transaction(self) -> AbstractContextManager[Transaction | None]:
        """A transaction, for a `with` block: what is changed in it counts altogether, or, if an exception leaves the block or the process
        dies, not at all. Without one, each change counts at once. See `Heap.transaction`."""
        # In plain memory there is nothing to change, which is told where it is tried.
        return nullcontext() if self._heap is None else self._heap.transaction()

    def new_tag(self, name: str, attrs: Mapping[str, str] = {}, **attributes: str) -> Element:
        """Makes an element that is nowhere yet."""
        both: dict[str, Any] = {**attrs, **attributes}
        if "class_" in both:
            both["class"] = both.pop("class_")
        native = self._native
        return self._element(native, native.create_element(name, list(both.items())))

    def new_string(self, text: str) -> Text:
        """Makes a text that is nowhere yet."""
        native = self._native
        return Text._of(self, native, native.create_text(text))

    def compact(self) -> None:
        """Gives back the room of what changes have removed or replaced. The document is asked as before; nodes that it gave before
        raise `Closed`: ask it for them again."""
        # The old one is not closed: it refuses, and says why.
        self._native = self._native.compact()

    def commit(self, level: Any = "power") -> None:
        """Makes everything that was stored in its heap so far survive; see `Heap.commit`."""
        if self._heap is not None:
            self._heap.commit(level)

    def _together(self, nodes: Sequence[object]) -> AbstractContextManager[object]:
        """A transaction for several. (One is a transaction by itself, and being refused does not end that around it.)"""
        return nullcontext() if len(nodes) == 1 else self.transaction()

    def _place(self, native: _Document, node: Element | Text | str, parent: int | None, sibling: int | None) -> None:
        """Puts a node of this document, or a text that becomes one, into a parent or before a sibling, which are of this edition."""
        if isinstance(node, (Element, Text)):
            if node._document is not self:
                raise DocumentError("the node belongs to another document; parse or make it in this one")
            if node._native is not native:
                # One of them is of before `compact`: its number means another node here.
                node._native.kind(node._id)
            native.place(node._id, None, parent, sibling)
        elif isinstance(node, str):
            native.place(None, node, parent, sibling)
        else:
            raise TypeError(f"what is put into a document is an Element or a str, not {type(node).__name__}")
