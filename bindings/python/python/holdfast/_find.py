"""What `find` and `find_all` look for: names and attributes, as text, patterns, functions, lists of these, or `True`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._nodes import Element

#: A text that is equal; a pattern that is found; a function that says so; `True`: anything; `None`: nothing; or several, of which
#: one is enough.
Wanted = str | re.Pattern[str] | Callable[[str | None], object] | bool | None | Iterable[Any]


def _fits(wanted: Any, value: str | None) -> bool:
    if wanted is True:
        return value is not None
    if wanted is None or wanted is False:
        return value is None
    if isinstance(wanted, str):
        return value == wanted
    if isinstance(wanted, re.Pattern):
        return value is not None and wanted.search(value) is not None
    if callable(wanted):
        return bool(wanted(value))
    if isinstance(wanted, Iterable) and not isinstance(wanted, (bytes, Mapping)):
        return any(_fits(one, value) for one in wanted)
    raise TypeError(f"an attribute is looked for by str, re.Pattern, function, bool, None or a list of these, not {wanted!r}")


def _has_class(wanted: Any, value: str | None) -> bool:
    """One of the classes fits, or all of them as one text."""
    if value is None:
        return _fits(wanted, None)
    return any(_fits(wanted, one) for one in value.split()) or _fits(wanted, value)


class Query:
    """One call of `find_all`."""

    def __init__(self, name: Any, attrs: Any, keywords: Mapping[str, Any]) -> None:
        if isinstance(attrs, str):
            # As a text it is a class.
            attrs = {"class": attrs}
        if not isinstance(attrs, Mapping):
            raise TypeError(f"attrs is a dict of attributes, not {type(attrs).__name__}")
        if "string" in keywords or "text" in keywords:
            raise TypeError("find and find_all look for elements; look at their texts with `string` or `strings`")
        self.name = name
        self.attributes = dict(attrs)
        for key, wanted in keywords.items():
            self.attributes["class" if key == "class_" else key] = wanted

    def names(self) -> list[str] | None:
        """The names, if they are a plain list: the native half compares them."""
        if isinstance(self.name, str):
            return [self.name]
        if isinstance(self.name, (list, tuple, set, frozenset)) and all(isinstance(one, str) for one in self.name):
            return list(self.name)
        return None

    def takes(self, element: Element, is_named: bool) -> bool:
        """Whether the element is one; `is_named`: its name was compared."""
        if not is_named and self.name is not None and not self._takes_name(element):
            return False
        if not self.attributes:
            return True
        values = element.attributes
        for name, wanted in self.attributes.items():
            fits = _has_class if name == "class" else _fits
            if not fits(wanted, values.get(name)):
                return False
        return True

    def _takes_name(self, element: Element) -> bool:
        if callable(self.name) and not isinstance(self.name, re.Pattern):
            return bool(self.name(element))
        return _fits(self.name, element.name)
