"""Types whose values lie in memory the same way in Python, C, C++ and Rust, native and in WebAssembly.

    class Node(holdfast.Portable):
        version = 1
        fields = {"next": holdfast.ref("Node"), "flags": holdfast.u32, "key": holdfast.u64}

    with holdfast.Heap("book", portable=True) as heap:
        first = Node.open(heap, "first") or Node.create(heap, "first")
        with heap.transaction() as tx:
            tx.add(first.view)                # what is going to change is announced first
            node = Node.new(heap)
            node.key = 7
            first.next = node

Values are views of the heap's memory: nothing is copied. The layout of a type, a number, is what the other languages compute
for the same version and fields; a root carries it, and opens only as what it is.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ._errors import LayoutMismatch
from ._holdfast import Heap

_UNIT_BYTES = 8
_REACH_BYTES = _UNIT_BYTES << 32
#: So many references deep, what they lead to is part of a layout.
_DEPTH = 3
_MASK = (1 << 64) - 1
#: The values of each open heap that are alive.
_VALUES: weakref.WeakKeyDictionary[Heap, dict[int, weakref.ref[Portable]]] = weakref.WeakKeyDictionary()


def _values(heap: Heap) -> Iterator[tuple[Portable, Any]]:
    """The values of a heap that have memory, each with the object that it is a part of."""
    for value in list(_VALUES.get(heap, {}).values()):
        found = value()
        if found is not None:
            with contextlib.suppress(ValueError):
                yield found, found.view.obj


def _objects(heap: Heap) -> int:
    """Of how many objects values have memory."""
    return len({id(memory) for _, memory in _values(heap)})


def _release(heap: Heap) -> list[tuple[Portable, int, int]]:
    """Takes the memory from the values of a heap that closes; each use of one is a `ValueError` from then on."""
    released = []
    for value, memory in _values(heap):
        # One of which there are other views, such as an array's, keeps the heap open.
        with contextlib.suppress(BufferError):
            base, start = memory._offset, value._place()
            value.view.release()
            released.append((value, base, start - base))
    return released


def _restore(heap: Heap, released: list[tuple[Portable, int, int]]) -> None:
    """Gives it back, to the values of a heap that could not be closed."""
    for value, base, start in released:
        end = start + value._size
        value.view = heap._object(base, end)[start:end]


def _text(hash: int, text: bytes) -> int:
    for byte in text:
        hash = (hash ^ byte) * 0x100000001B3 & _MASK
    return hash


def _word(hash: int, word: int) -> int:
    return _text(hash, word.to_bytes(8, "little"))


def _start(kind: str, size: int, align: int) -> int:
    return _word(_word(_text(0xCBF29CE484222325, kind.encode()), size), align)


def _field(hash: int, name: str, offset: int, layout: int) -> int:
    text = name.encode()
    return _word(_word(_word(_text(hash, text), len(text)), offset), layout)


class _Kind:
    """What a field holds. Sizes in bytes."""

    size: int
    align: int

    def _shape(self, depth: int, where: type[Portable]) -> int:
        """The hash of its layout, with what references lead to, so many of them deep."""
        raise NotImplementedError

    def _get(self, owner: Portable, offset: int) -> Any:
        raise NotImplementedError

    def _set(self, owner: Portable, offset: int, value: Any) -> None:
        raise NotImplementedError


class _Value(_Kind):
    """An integer or a float."""

    def __init__(self, name: str, code: str) -> None:
        self.name = name
        self.packed = struct.Struct("<" + code)
        self.size = self.align = self.packed.size

    def _shape(self, depth: int, where: type[Portable]) -> int:
        return _start(self.name, self.size, self.align)

    def _get(self, owner: Portable, offset: int) -> Any:
        return self.packed.unpack_from(owner.view, offset)[0]

    def _set(self, owner: Portable, offset: int, value: Any) -> None:
        try:
            self.packed.pack_into(owner.view, offset, value)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{value!r} is no {self.name}: {error}") from None

    def __repr__(self) -> str:
        return f"holdfast.{self.name}"


u8, u16, u32, u64 = _Value("u8", "B"), _Value("u16", "H"), _Value("u32", "I"), _Value("u64", "Q")
i8, i16, i32, i64 = _Value("i8", "b"), _Value("i16", "h"), _Value("i32", "i"), _Value("i64", "q")
f32, f64 = _Value("f32", "f"), _Value("f64", "d")


class ref(_Kind):  # noqa: N801 (it reads as a type, beside u32 and f64)
    """A reference to a value of another type, named by its class or, in the same module, by the name of that."""

    size = align = 4

    def __init__(self, to: type[Portable] | str) -> None:
        self.to = to

    def _target(self, where: type[Portable]) -> type[Portable]:
        """The type that it leads to."""
        if not isinstance(self.to, str):
            return self.to
        found = where if self.to == where.__name__ else getattr(sys.modules[where.__module__], self.to, None)
        if not (isinstance(found, type) and issubclass(found, Portable)):
            raise TypeError(f"{where.__name__} refers to {self.to}, which is no Portable of {where.__module__}; pass the class")
        return found

    def _shape(self, depth: int, where: type[Portable]) -> int:
        hash = _start("ref", 4, 4)
        return hash if depth == 0 else _field(hash, "to", 0, self._target(where)._shape(depth - 1))

    def _get(self, owner: Portable, offset: int) -> Portable | None:
        units = u32._get(owner, offset)
        return self._target(type(owner))._at(owner.heap, units * _UNIT_BYTES) if units else None

    def _set(self, owner: Portable, offset: int, value: Portable | None) -> None:
        if value is None:
            u32._set(owner, offset, 0)
            return
        target = self._target(type(owner))
        if not isinstance(value, target):
            raise TypeError(f"the reference leads to a {target.__name__}, and not to a {type(value).__name__}")
        if value.heap is not owner.heap:
            raise ValueError("a reference leads to an object of its own heap; make one there with new()")
        place = value._place()
        if place % _UNIT_BYTES or place >= _REACH_BYTES:
            raise ValueError("a reference leads to a value that is aligned to 8 and within 32 GiB")
        u32._set(owner, offset, place // _UNIT_BYTES)

    def __repr__(self) -> str:
        return f"holdfast.ref({self.to if isinstance(self.to, str) else self.to.__name__})"


class array(_Kind):  # noqa: N801
    """So many values of a kind, or of a Portable, in a row."""

    def __init__(self, of: _Kind | type[Portable], length: int) -> None:
        self.of = _kind(of)
        if length < 1:
            raise ValueError("an array has at least one element")
        self.length = length
        self.size, self.align = self.of.size * length, self.of.align

    def _shape(self, depth: int, where: type[Portable]) -> int:
        return _field(_start("array", self.size, self.align), "", self.length, self.of._shape(depth, where))

    def _get(self, owner: Portable, offset: int) -> memoryview | Elements:
        """Of bytes a `memoryview`, of anything else a sequence that stores in place."""
        if self.of is u8:
            return owner.view[offset : offset + self.size]
        return Elements(owner, self, offset)

    def _set(self, owner: Portable, offset: int, value: Any) -> None:
        if self.of is u8 and isinstance(value, bytes | bytearray | memoryview):
            if len(value) > self.length:
                raise ValueError(f"{len(value)} bytes do not fit into {self.length}")
            owner.view[offset : offset + self.size] = bytes(value).ljust(self.size, b"\0")
            return
        values = list(value)
        if len(values) != self.length:
            raise ValueError(f"the array has {self.length} elements, and {len(values)} were given")
        # Beside the heap first: all of them are stored or none, and those that lie in this array are read before it changes.
        draft = object.__new__(type(owner))
        draft.heap, draft.view = owner.heap, memoryview(bytearray(self.size))
        for index, element in enumerate(values):
            self.of._set(draft, index * self.of.size, element)
        owner.view[offset : offset + self.size] = draft.view

    def __repr__(self) -> str:
        return f"holdfast.array({self.of!r}, {self.length})"


class Elements(Sequence[Any]):
    """The elements of an array, in place."""

    def __init__(self, owner: Portable, kind: array, offset: int) -> None:
        self._owner, self._kind, self._offset = owner, kind, offset

    def _place(self, index: int) -> int:
        length = self._kind.length
        if not -length <= index < length:
            raise IndexError(f"the array has {length} elements, and no {index}")
        return self._offset + index % length * self._kind.of.size

    def __len__(self) -> int:
        return self._kind.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        return self._kind.of._get(self._owner, self._place(index))

    def __setitem__(self, index: int, value: Any) -> None:
        self._kind.of._set(self._owner, self._place(index), value)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return repr(list(self))


class _Inner(_Kind):
    """A Portable inside of another one."""

    def __init__(self, of: type[Portable]) -> None:
        self.of = of
        self.size, self.align = of._size, of._align

    def _shape(self, depth: int, where: type[Portable]) -> int:
        return self.of._shape(depth)

    def _get(self, owner: Portable, offset: int) -> Portable:
        value = self.of._of(owner.heap, owner.view[offset : offset + self.size])
        value._is_inner = True
        return value

    def _set(self, owner: Portable, offset: int, value: Any) -> None:
        if not isinstance(value, self.of):
            raise TypeError(f"the field is a {self.of.__name__}, and no {type(value).__name__}")
        owner.view[offset : offset + self.size] = bytes(value.view)

    def __repr__(self) -> str:
        return self.of.__name__


def _kind(of: Any) -> _Kind:
    if isinstance(of, _Kind):
        return of
    if isinstance(of, type) and issubclass(of, Portable):
        return _Inner(of)
    raise TypeError(f"{of!r} is no portable kind; use u8 to u64, i8 to i64, f32, f64, ref, array, or a Portable")


class _FieldOf:
    """A field of a Portable, as its attribute."""

    def __init__(self, kind: _Kind, offset: int) -> None:
        self.kind, self.offset = kind, offset

    def __get__(self, owner: Portable | None, _type: Any = None) -> Any:
        return self if owner is None else self.kind._get(owner, self.offset)

    def __set__(self, owner: Portable, value: Any) -> None:
        self.kind._set(owner, self.offset, value)


class Portable:
    """A value in a heap, of a type with one layout everywhere. Subclasses name their `fields`, in order, and a `version`.

    A field with the name of a method hides that method. Bytes between fields, or behind the last one, have no place in such a type: `TypeError` says where they would be.
    """

    #: Raised when the meaning changes and the fields do not.
    version: ClassVar[int] = 0
    #: Names and kinds: `u8` to `u64`, `i8` to `i64`, `f32`, `f64`, `ref`, `array`, another Portable.
    fields: ClassVar[dict[str, Any]] = {}

    _kinds: ClassVar[list[tuple[str, int, _Kind]]] = []
    _size: ClassVar[int] = 0
    _align: ClassVar[int] = 1
    #: Whether it is a part of another value.
    _is_inner: bool = False

    #: The heap that it lies in. Values are of no use once it is closed.
    heap: Heap
    #: Its bytes.
    view: memoryview

    if TYPE_CHECKING:
        # The fields.
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.fields:
            raise TypeError(f"{cls.__name__} has no fields; name them: fields = {{'count': holdfast.u64}}")
        offset, align, kinds = 0, 1, []
        for name, of in cls.fields.items():
            kind = _kind(of)
            if not name.isidentifier() or name.startswith("_") or name in ("heap", "view", "version", "fields"):
                raise TypeError(f"{cls.__name__}: a field cannot be called {name!r} in Python; use another name everywhere")
            if offset % kind.align:
                gap = kind.align - offset % kind.align
                raise TypeError(f"{cls.__name__}: {gap} bytes before {name!r} have no name; give them one, such as array(u8, {gap})")
            kinds.append((name, offset, kind))
            setattr(cls, name, _FieldOf(kind, offset))
            offset, align = offset + kind.size, max(align, kind.align)
        if offset % align:
            gap = align - offset % align
            raise TypeError(f"{cls.__name__}: {gap} bytes at the end have no name; give them one, such as array(u8, {gap})")
        cls._kinds, cls._size, cls._align = kinds, offset, align

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__} values lie in heaps; make one with new() or create(), or open() a root")

    @classmethod
    def _of(cls, heap: Heap, view: memoryview) -> Self:
        value = object.__new__(cls)
        value.heap, value.view = heap, view
        values, number = _VALUES.setdefault(heap, {}), id(value)
        values[number] = weakref.ref(value, lambda _: values.pop(number, None))
        return value

    @classmethod
    def _shape(cls, depth: int) -> int:
        hash = _word(_start("portable", cls._size, cls._align), cls.version)
        for name, offset, kind in cls._kinds:
            hash = _field(hash, name, offset, kind._shape(depth, cls))
        return hash

    @classmethod
    def _layout(cls) -> int:
        return cls._shape(_DEPTH)

    @classmethod
    def _at(cls, heap: Heap, offset: int) -> Self:
        return cls._of(heap, heap._object(offset, cls._size))

    def _place(self) -> int:
        return self.heap._offset(self.view)

    @classmethod
    def layout(cls) -> int:
        """The number that stands for this type in roots, the same in every language."""
        return cls._layout()

    @classmethod
    def size(cls) -> int:
        """Bytes of a value."""
        return cls._size

    @classmethod
    def create(cls, heap: Heap, name: str) -> Self:
        """Makes a root of zeroes of this type. Raises `RootExists`, `HeapNoRoom`."""
        return cls._of(heap, heap._create(name, cls._size, cls._layout()))

    @classmethod
    def open(cls, heap: Heap, name: str) -> Self | None:
        """The root of this name, or None if there is none. Raises `LayoutMismatch` for one of another type."""
        if name not in heap:
            return None
        stored, wanted = heap._layout(name), cls._layout()
        if stored != wanted:
            has = "no layout" if stored is None else f"the layout {stored:#018x}"
            text = (
                f"the root {name!r} has {has}, and {cls.__name__} has {wanted:#018x}; use the type that it was made with "
                f"(same version, and same fields in the same order), or read its bytes: heap[{name!r}]"
            )
            raise LayoutMismatch(text, stored=stored, wanted=wanted)
        return cls._of(heap, heap[name][: cls._size])

    @classmethod
    def new(cls, heap: Heap) -> Self:
        """Makes an object of zeroes without a name, to be referred to by another one. Raises `HeapNoRoom`."""
        return cls._of(heap, heap._allocate(cls._size))

    @classmethod
    def at(cls, heap: Heap, offset: int) -> Self:
        """The value of this type at an offset from the heap's first byte. Raises `HeapError` where no object begins."""
        return cls._at(heap, offset)

    @property
    def offset(self) -> int:
        """Where it lies, from the heap's first byte."""
        return self._place()

    def free(self) -> None:
        """Frees an object without a name; in a transaction, when that commits. The value is of no use any more.

        Refused (`BufferError`) while other views of it are alive; `RootExists` for a root, which `del heap[name]` removes;
        `ValueError` for a part of another value.
        """
        if self._is_inner:
            raise ValueError("the value is a part of another one; free that")
        offset = self._place()
        self.view.release()
        try:
            self.heap._free(offset)
        except BaseException:
            self.view = self.heap._object(offset, self._size)
            raise

    def __eq__(self, other: object) -> bool:
        """Whether it is the same value at the same place."""
        if not isinstance(other, Portable):
            return NotImplemented
        return type(other) is type(self) and other.heap is self.heap and other._place() == self._place()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (f"{name}={kind!r}" for name, _, kind in self._kinds)
        return f"<{type(self).__name__} {', '.join(shown)}>"
