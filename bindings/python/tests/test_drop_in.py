"""`holdfast.compat`: the questions that programs for BeautifulSoup and selectolax ask have the same answers."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import holdfast
import pytest
from holdfast.compat import Document

# Every parser makes the same tree of it.
PAGE = """<!DOCTYPE html><html lang="en"><head><title>A &amp; B</title><style>p {}</style></head><body class="a b" id="x"><h1>News</h1>
<!-- c --><ul id="news"><li class="item new"><a href="/1" rel="next nofollow">First</a> <i>of</i> two</li><li class="item">
<a href="/2">Second</a></li></ul><p>one <b>two <i>deep</i></b> three</p><script>if (1) {}</script><table><tbody><tr>
<td headers="p q">cell</td></tr></tbody></table></body></html>"""

Question = Callable[[Any], Any]


def plain(answer: Any, attributes: str) -> Any:
    """An answer without the types of a package; `attributes` is what an element calls them there."""
    if answer is None or isinstance(answer, (bool, int)):
        return answer
    if isinstance(answer, str):
        return str(answer)
    if isinstance(answer, dict):
        return {str(name): plain(value, attributes) for name, value in answer.items()}
    if hasattr(answer, attributes):
        return answer.html if attributes == "attributes" else str(answer), plain(dict(getattr(answer, attributes)), attributes)
    return [plain(one, attributes) for one in answer]


SOUP: dict[str, Question] = {
    "find": lambda page: page.find("li"),
    "find nothing": lambda page: page.find("dl"),
    "find_all": lambda page: page.find_all("li"),
    "find_all several": lambda page: page.find_all(["h1", "p", "b"]),
    "find_all pattern": lambda page: page.find_all(re.compile("^h")),
    "find_all function": lambda page: page.find_all(lambda tag: tag.has_attr("href")),
    "find_all any": lambda page: page.body.find_all(True),
    "find_all class": lambda page: page.find_all("li", class_="item"),
    "find_all all classes": lambda page: page.find_all(class_="item new"),
    "find_all classes in another order": lambda page: page.find_all(class_="new item"),
    "find_all class as attrs": lambda page: page.find_all("li", {"class": "new"}),
    "find_all class as text": lambda page: page.find_all("li", "new"),
    "find_all id": lambda page: page.find_all(id="news"),
    "find_all attribute": lambda page: page.find_all("a", href=True),
    "find_all attribute pattern": lambda page: page.find_all(href=re.compile("2")),
    "find_all without attribute": lambda page: page.find_all("li", id=None),
    "find_all limit": lambda page: page.find_all("a", limit=1),
    "find_all direct": lambda page: page.body.find_all(recursive=False),
    "find in a part": lambda page: page.find(id="news").find("a"),
    "find_parent": lambda page: page.find("b").find_parent("body"),
    "select": lambda page: page.select("ul > li:nth-child(2) a[href]"),
    "select_one": lambda page: page.select_one("#news .new"),
    "select_one nothing": lambda page: page.select_one("dl"),
    "select limit": lambda page: page.select("a", limit=1),
    "get_text": lambda page: page.get_text(),
    "get_text of a part": lambda page: page.find("ul").get_text(),
    "get_text separated": lambda page: page.find("ul").get_text("|", strip=True),
    "get_text of a script": lambda page: page.find("script").get_text(),
    "text": lambda page: page.find("p").text,
    "strings": lambda page: list(page.find("p").strings),
    "stripped_strings": lambda page: list(page.body.stripped_strings),
    "string": lambda page: [page.title.string, page.find("p").string, page.find("li").string, page.find("script").string],
    "string of a string": lambda page: page.find("td").string,
    "attribute": lambda page: page.find("a")["href"],
    "attribute of words": lambda page: [page.find("a")["rel"], page.body["class"], page.find("td")["headers"]],
    "get": lambda page: [page.find("a").get("href"), page.find("a").get("no"), page.find("a").get("no", "d")],
    "attrs": lambda page: page.find("a").attrs,
    "has_attr": lambda page: page.find("a").has_attr("href"),
    "name": lambda page: page.find("p").name,
    "children": lambda page: [child.name or str(child) for child in page.find("p").children],
    "contents": lambda page: len(page.find("ul").contents),
    "descendants": lambda page: [node.name or str(node) for node in page.find("p").descendants],
    "parent": lambda page: page.find("b").parent,
    "parents": lambda page: [parent.name for parent in page.find("b").parents],
    "next_sibling": lambda page: str(page.find("b").next_sibling),
    "previous_sibling": lambda page: str(page.find("b").previous_sibling),
    "no sibling": lambda page: page.find("html").next_sibling,
    "next_siblings": lambda page: [node.name for node in page.find("h1").next_siblings if node.name],
    "previous_siblings": lambda page: [node.name for node in page.find("script").previous_siblings if node.name],
    "iteration over an element": lambda page: [node.name for node in page.find("p")],
    "as text": lambda page: str(page.find("p")),
    "decode": lambda page: page.find("ul").decode(),
    "decode_contents": lambda page: page.find("p").decode_contents(),
    "head and body": lambda page: [page.head, page.body],
}

SELECTOLAX: dict[str, Question] = {
    "css": lambda page: page.css("ul > li a[href]"),
    "css_first": lambda page: page.css_first("#news .new"),
    "css_first default": lambda page: page.css_first("dl", default="none"),
    "css in a part": lambda page: page.css_first("ul").css("a"),
    "css_matches": lambda page: [page.body.css_matches("p b"), page.body.css_matches("dl")],
    "tag": lambda page: [node.tag for node in page.css("li, b")],
    "attributes": lambda page: page.css_first("a").attributes,
    "text": lambda page: page.css_first("p").text(),
    "text separated": lambda page: page.css_first("p").text(separator="|", strip=True),
    "text alone": lambda page: page.css_first("p").text(deep=False),
    "text of scripts": lambda page: page.css_first("script").text(),
    "parent": lambda page: page.css_first("b").parent.tag,
    "tags": lambda page: page.tags("li"),
    "html of a part": lambda page: page.css_first("p").html,
    "id": lambda page: [page.body.id, page.css_first("p").id],
    "head and body": lambda page: [page.head.tag, page.body.tag],
    "decompose": lambda page: [page.css_first("h1").decompose(), page.css_first("h1")],
}


@pytest.fixture
def page(tmp_path: Any) -> Any:
    with Document.parse(PAGE, heap="pages", name="page", home=tmp_path / "home", pool=tmp_path / "pool") as page:
        yield page


# Guarantee: documents/python-names
@pytest.mark.parametrize("question", SOUP)
def test_answers_are_those_of_beautifulsoup(question: str, page: Any) -> None:
    bs4 = pytest.importorskip("bs4")
    ask = SOUP[question]
    assert plain(ask(page), "attrs") == plain(ask(bs4.BeautifulSoup(PAGE, "html.parser")), "attrs")


# Guarantee: documents/python-names
@pytest.mark.parametrize("question", SELECTOLAX)
def test_answers_are_those_of_selectolax(question: str, page: Any) -> None:
    lexbor = pytest.importorskip("selectolax.lexbor")
    ask = SELECTOLAX[question]
    assert plain(ask(page), "attributes") == plain(ask(lexbor.LexborHTMLParser(PAGE)), "attributes")


def test_names_without_a_peer_forward(page: Any) -> None:
    paragraph, body = page.find("p"), page.body
    assert paragraph.encode() == paragraph.html.encode() and page.decode() == page.html
    assert paragraph.text(separator="|", strip=True) == "one|two|deep|three"
    assert page.css_first("dl", 5) == 5 and page.css_first("h1", strict=True) == page.find("h1")
    with pytest.raises(ValueError, match="2 elements"):
        page.css_first("a", strict=True)
    assert body.has_attr("id") and not body.has_attr("none") and page.tags("a") == page.css("a")
    # Elements found in any way have the names.
    found = [next(iter(page)), paragraph.parent, page.find("b").closest("p"), page.root, page.select_one("b")]
    made = page.new_tag("i", {"id": "made"})
    assert [one.tag for one in [*found, made]] == ["html", "body", "p", "html", "b", "i"]


def test_a_copy_of_text_for_another_process_is_a_text(page: Any) -> None:
    text = page.find("p").text
    again = pickle.loads(pickle.dumps(text))
    assert type(again) is str and again == text


def test_a_copy_of_text_in_this_process_can_be_called(page: Any) -> None:
    text = page.find("p").text
    assert copy.copy(text) is text and copy.deepcopy([text])[0] is text
    assert copy.deepcopy(text)(separator="|", strip=True) == "one|two|deep|three"


def test_text_from_before_compact_is_refused(page: Any) -> None:
    text = page.find("p").text
    page.compact()
    assert text.startswith("one two")
    with pytest.raises(holdfast.Closed, match="compacted.*ask"):
        text()
