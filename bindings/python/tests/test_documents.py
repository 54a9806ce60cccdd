"""HTML documents from Python."""

from __future__ import annotations

import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import holdfast
import pytest
from holdfast import Comment, Document, Element, Text

Places = dict[str, Any]

PAGE = """<!DOCTYPE html><!--c--><title>A &amp; B</title><body class="a b" id=x><p>one <b>two</b><br>three
<a href=/1 rel="next nofollow">first</a><a href=/2 title=t>second</a><script>if (1) {}</script>
<svg xlink:href="#y"></svg><template><i>in</i></template>"""


@pytest.fixture(params=["heap", "memory"])
def page(request: pytest.FixtureRequest, places: Places) -> Iterator[Document]:
    with parsed(places) if request.param == "heap" else Document.parse(PAGE) as page:
        yield page


def parsed(places: Places, source: str = PAGE) -> Document:
    return Document.parse(source, heap="pages", name="page", **places)


@pytest.fixture
def kept(places: Places) -> Iterator[Document]:
    with parsed(places) as page:
        yield page


def one(page: Element, selector: str) -> Element:
    found = page.select_one(selector)
    assert found is not None
    return found


# Guarantee: documents/python
def test_a_page_is_there_again_and_is_opened_without_parsing(places: Places) -> None:
    with parsed(places) as page:
        html = page.html
        assert page.document_name == "page" and page.heap is not None and page.size_bytes > 0
        assert repr(page) == "<holdfast.Document 'page' in the heap 'pages'>"
    assert page.closed and "closed" in repr(page)
    with Document.open("page", heap="pages", **places) as page:
        assert page.html == html == str(page)
        page.check()
    with Document.open(heap="pages", **places) as page:
        assert page.document_name == "page"


# Guarantee: documents/python
def test_sources_are_text_bytes_and_files(places: Places, tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    file.write_text("<p>ü")
    with holdfast.Heap("pages", **places) as heap:
        sources: list[Any] = ["<p>ü", "<p>ü".encode(), bytearray("<p>ü".encode()), memoryview("<p>ü".encode())]
        for source in sources:
            with Document.parse(source, heap=heap, name="b") as page:
                assert one(page, "p").get_text() == "ü"
            assert not heap.closed
        with Document.parse(file, heap=heap) as page:
            assert page.document_name == "a.html" and one(page, "p").string == "ü"
        assert Document.names(heap) == ["a.html", "b"]
        assert Document.parse(b"<p>\xff").get_text() == "\ufffd"
        assert Document.parse("<p>\ud800").get_text() == "?"
        with pytest.raises(holdfast.DocumentError, match="a.html, b"):
            Document.open(heap=heap)
        del heap["b"]
        assert Document.names(heap) == ["a.html"] and "a.html" in heap


# Guarantee: documents/python
def test_elements_come_in_the_order_of_the_document(page: Document) -> None:
    names = ["html", "head", "title", "body", "p", "b", "br", "a", "a", "script", "svg", "template"]
    assert [element.name for element in page] == names
    body = page.body
    assert body is not None and [element.name for element in body.find_all(True)] == names[4:]
    assert body == one(page, "body") and hash(body) == hash(one(page, "body")) and body != page.head and body != 1
    assert page.root == one(page, "html") and page.title is not None and page.title.string == "A & B"


# Guarantee: documents/python
def test_nodes_have_neighbours_and_texts_are_str(page: Document) -> None:
    comment = page.contents[1]
    assert isinstance(comment, Comment) and comment == "c" and comment.parent is page
    paragraph = one(page, "p")
    kinds = [child.name for child in paragraph]
    assert kinds[:5] == [None, "b", "br", None, "a"] and len(paragraph) == len(kinds)
    text = paragraph.contents[0]
    assert isinstance(text, Text) and isinstance(text, str) and text == "one " and text.parent == paragraph
    assert text.next_sibling == one(page, "b") and text.previous_sibling is None and text.text == "one "
    assert [node.name for node in one(page, "a").next_siblings if node.name] == ["a", "script", "svg", "template"]
    assert [node.name for node in one(page, "a").previous_siblings if node.name] == ["br", "b"]
    assert [parent.name for parent in one(page, "b").parents] == ["p", "body", "html", "[document]"]
    assert [str(node) for node in one(page, "b").descendants] == ["two"] and text in paragraph
    assert page.parent is None and page.next_sibling is None
    assert pickle.loads(pickle.dumps(text)) == "one " and type(pickle.loads(pickle.dumps(text))) is str
    template = one(page, "template")
    assert template.contents == [] and template.template_contents is not None
    assert template.template_contents.get_text() == "in"
    assert str(template) == "<template><i>in</i></template>"
    assert "svg" in (one(page, "svg").namespace or "")


# Guarantee: documents/python
def test_attributes_are_as_in_a_mapping(page: Document) -> None:
    link = one(page, "a")
    assert link["href"] == "/1" and link["rel"] == ["next", "nofollow"] and link.get("none") is None
    assert link.get("none", 5) == 5 and "rel" in link.attributes
    assert link.attributes == {"href": "/1", "rel": "next nofollow"}
    assert link["rel"] == ["next", "nofollow"]
    assert one(page, "body")["class"] == ["a", "b"] and one(page, "body")["id"] == "x"
    assert one(page, "svg").attributes == {"xlink:href": "#y"}
    with pytest.raises(KeyError, match="none"):
        link["none"]
    assert repr(link) == "<holdfast.Element a href='/1' rel='next nofollow'>"


# Guarantee: documents/python
def test_text_comes_in_the_forms_that_are_known(page: Document) -> None:
    paragraph = one(page, "p")
    assert paragraph.get_text("|", strip=True) == "one|two|three|first|second"
    assert paragraph.get_text().startswith("one two") and "if (1)" not in paragraph.get_text()
    assert [text.parent.name for text in paragraph.strings if text.parent][:2] == ["p", "b"]
    assert one(page, "script").get_text() == "if (1) {}" and one(page, "b").string == "two"
    assert paragraph.string is None and one(page, "br").string is None
    assert one(page, "b").inner_html == "two"


# Guarantee: documents/python
def test_selectors_are_those_of_css(page: Document) -> None:
    assert [link["href"] for link in page.select("a[href]")] == ["/1", "/2"]
    assert len(page.select("a", limit=1)) == 1 and page.select_one("a + a") == page.select("a")[1]
    assert page.select_one("ul") is None and page.select_one("p > b") == page.find("b")
    link = one(page, "a")
    assert link.matches("p a:first-of-type") and not link.matches("b") and link.closest("body") == page.body
    assert link.closest("ul") is None and page.select("i") == []
    with pytest.raises(holdfast.SelectorError, match="invalid selector `p\\[`.*character") as raised:
        page.select("p[")
    assert raised.value.selector == "p[" and raised.value.column > 0 and raised.value.reason
    with pytest.raises(holdfast.DocumentTooLarge, match="selector") as large:
        page.select("a " * 10_000)
    assert large.value.max == 16 << 10 and isinstance(large.value, ValueError)


# Guarantee: documents/python-names
def test_find_takes_what_beautifulsoup_takes(page: Document) -> None:
    first, second = page.find_all("a")
    assert page.find("a") == first and page.find("ul") is None and page.find_all(["b", "br"], limit=1) == [one(page, "b")]
    assert page.find_all(re.compile("^b")) == [page.body, one(page, "b"), one(page, "br")]
    assert page.find_all(lambda element: "title" in element.attributes) == [second]
    assert page.find_all("a", title=True) == [second] and page.find_all("a", title=None) == [first]
    assert page.find_all(attrs={"href": re.compile("2$")}) == [second] == page.find_all(href=["/2", "/3"])
    assert page.find_all(href=lambda value: value is not None and value.endswith("1")) == [first]
    for wanted in ["a", "b", "a b", re.compile("b"), ["x", "b"]]:
        assert page.find(class_=wanted) == page.body == page.find("body", attrs={"class": wanted})
    assert page.find("body", "b") == page.body and page.find(class_="c") is None and page.find(id="x") == page.body
    assert page.find("b", recursive=False) is None and one(page, "p").find("b", recursive=False) == one(page, "b")
    assert first.find_parent("body") == page.body and first.find_parent("ul") is None
    with pytest.raises(TypeError, match="string"):
        page.find("a", string="first")
    with pytest.raises(TypeError, match="attribute"):
        page.find("a", href=3)


# Guarantee: documents/python
def test_changes_count_at_once_or_together(kept: Document, places: Places) -> None:
    link, body = one(kept, "a"), one(kept, "body")
    link["class"] = ["x", "y"]
    link["href"] = "/3"
    del link["rel"]
    del link["none"]
    assert str(link) == '<a href="/3" class="x y">first</a>'
    with pytest.raises(RuntimeError):
        with kept.transaction():
            link.string = "changed"
            one(kept, "b").decompose()
            assert link.string == "changed" and kept.find("b") is None
            raise RuntimeError
    assert link.string == "first" and one(kept, "b").string == "two"
    with kept.transaction():
        item = kept.new_tag("LI", {"data-a": "1"}, class_="new")
        item.append("text")
        item.append(kept.new_string("!"))
        # What is refused is no reason to undo the rest.
        refusals: list[Callable[[], object]] = [
            lambda: item.append(item), lambda: kept.new_tag("a b"), lambda: kept.new_tag("a", {"b c": ""}),
            lambda: kept.append("no text there"), lambda: link.insert_before(body), lambda: link.insert_after(body),
        ]
        for refused in refusals:
            with pytest.raises(holdfast.ChangeRefused):
                refused()
        link.insert_before(item)
        link.insert_after("behind", kept.new_tag("hr"))
    assert "<li data-a=\"1\" class=\"new\">text!</li><a" in kept.html and "</a>behind<hr><a" in kept.html
    assert item.next_sibling == link
    one(kept, "script").replace_with("no", kept.new_tag("em"))
    assert "no<em></em>" in kept.html and kept.find("script") is None
    with pytest.raises(holdfast.ChangeRefused):
        link.insert_before("half", body)
    assert "half" not in kept.html
    taken = one(kept, "svg").extract()
    one(kept, "em").extend([taken, "end"])
    assert "<em><svg xlink:href=\"#y\"></svg>end</em>" in kept.html
    html = kept.html
    number = link._id
    kept.compact()
    assert kept.html == html and one(kept, "a")._id != number
    one(kept, "p").clear()
    assert len(one(kept, "p")) == 0
    kept.check()
    kept.commit()
    html = kept.html
    kept.close()
    with Document.open(heap="pages", **places) as page:
        assert page.html == html


# Guarantee: documents/python
def test_a_page_in_memory_and_one_that_is_opened_for_reading_are_not_changed(places: Places) -> None:
    page = Document.parse(PAGE)
    with pytest.raises(holdfast.DocumentError, match="heap="):
        one(page, "a")["href"] = "/"
    with pytest.raises(holdfast.DocumentError, match="heap="):
        with page.transaction():
            page.append("x")
    parsed(places).close()
    with Document.open(heap="pages", read_only=True, **places) as page:
        with pytest.raises(holdfast.HeapDenied):
            one(page, "a")["href"] = "/"
        # Any number reads at a time, in one process, too; nobody writes meanwhile.
        with Document.open(heap="pages", read_only=True, **places) as again:
            assert again.html == page.html and one(again, "a")["href"] == one(page, "a")["href"]
        code = "import sys, holdfast; print(holdfast.Document.open(heap='pages', read_only=True).title.string)"
        environment = {**os.environ, "HOLDFAST_HOME": str(places["home"]), "HOLDFAST_POOL": str(places["pool"])}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
        assert done.stdout == "A & B\n", done.stderr
        with pytest.raises(holdfast.HeapHeld):
            Document.open(heap="pages", **places)


# Guarantee: documents/python-stale
def test_what_was_closed_is_refused_and_never_crashes(places: Places) -> None:
    page = parsed(places)
    link, text = one(page, "a"), one(page, "b").string
    assert text == "two"
    page.close()
    page.close()
    uses: list[Callable[[], object]] = [
        lambda: link.name, lambda: link["href"], lambda: page.select("a"), lambda: list(page), lambda: page.html,
        lambda: text.parent, lambda: link.append("x"), lambda: page.transaction().__enter__(), lambda: page.__enter__(),
    ]
    for use in uses:
        with pytest.raises(holdfast.Closed, match="closed"):
            use()
    assert "closed" in repr(link) and str(text) == "two"
    # The heap is somebody else's, and closed by that one.
    heap = holdfast.Heap("pages", **places)
    page = Document.open("page", heap=heap)
    link = one(page, "a")
    heap.close()
    assert page.closed
    with pytest.raises(holdfast.Closed):
        link["href"]
    # One that nobody closes lets go of its heap when it is gone.
    page = Document.open("page", heap="pages", **places)
    link = one(page, "a")
    del page
    assert link["href"] == "/1"
    del link
    gc.collect()
    Document.open("page", heap="pages", **places).close()


# Guarantee: documents/python-stale
def test_a_node_of_a_page_that_was_parsed_again_is_refused(places: Places) -> None:
    with holdfast.Heap("pages", atomic=True, **places) as heap:
        for ending in ["parse", "compact", "compact elsewhere", "remove", "rollback"]:
            page = Document.parse(PAGE, heap=heap, name="page")
            link = one(page, "a")
            heap.commit("process")
            match ending:
                case "parse":
                    Document.parse("<p>", heap=heap, name="page")
                case "compact":
                    page.compact()
                case "compact elsewhere":
                    Document.open("page", heap=heap).compact()
                case "remove":
                    del heap["page"]
                case _:
                    heap.rollback()
            with pytest.raises(holdfast.Closed, match="Document.open"):
                link["href"]
            with pytest.raises(holdfast.Closed, match="Document.open"):
                link["href"] = "/"
            assert repr(link) == "<holdfast.Element of a closed document>"
        page = Document.parse(PAGE, heap=heap, name="page")
        with pytest.raises(holdfast.TransactionError, match="replacing"):
            with heap.transaction():
                Document.parse(PAGE, heap=heap, name="page")
        with pytest.raises(holdfast.TransactionError, match="compacting"):
            with heap.transaction():
                page.compact()
        assert one(page, "a")["href"] == "/1"
        # What a transaction has put in its place is gone with that.
        with pytest.raises(RuntimeError):
            with heap.transaction():
                del heap["page"]
                other = Document.parse("<a href=/9>", heap=heap, name="page")
                assert one(other, "a")["href"] == "/9"
                raise RuntimeError
        for gone in [page, other]:
            with pytest.raises(holdfast.Closed, match="Document.open"):
                gone.select("a")
        assert one(Document.open("page", heap=heap), "a")["href"] == "/1"


# Guarantee: documents/python-stale
def test_a_node_from_before_compact_is_refused_and_never_another_one(kept: Document) -> None:
    one(kept, "title").decompose()
    link, text, bold = one(kept, "a"), one(kept, "b").string, one(kept, "b")
    assert text is not None
    made, made_text = kept.new_tag("li"), kept.new_string("x")
    # What was begun before yields nothing of after.
    begun: list[Iterator[Any]] = [
        iter(kept), kept.descendants, kept.strings, bold.parents, bold.next_siblings, link.previous_siblings
    ]
    for nodes in begun:
        next(nodes)
    kept.compact()
    html = kept.html
    body, new = one(kept, "body"), one(kept, "a")
    uses: list[Callable[[], object]] = [
        lambda: link.name, lambda: link["href"], lambda: link.html, lambda: link.select("b"), lambda: link.find_all("b"),
        lambda: link.contents, lambda: link.parent, lambda: link.matches("a"), lambda: len(link), lambda: list(link.descendants),
        lambda: link.get_text(), lambda: text.parent, lambda: text.next_sibling, lambda: text.extract(),
        lambda: link.append("x"), lambda: link.append(new), lambda: link.append(body), lambda: link.insert_before("x"),
        lambda: link.insert_after("x"), lambda: link.replace_with("x"), lambda: link.clear(), lambda: link.decompose(),
        lambda: link.__setitem__("href", "/9"), lambda: link.__delitem__("href"), lambda: setattr(link, "string", "x"),
        lambda: body.append(link), lambda: body.append(text), lambda: body.append(made), lambda: body.append(made_text),
        lambda: new.insert_before(link), lambda: new.insert_after(link), lambda: new.replace_with(link),
        lambda: body.extend(["x", link]),
    ]
    for use in uses:
        with pytest.raises(holdfast.Closed, match="compacted.*ask"):
            use()
        assert kept.html == html
    for nodes in begun:
        with pytest.raises(holdfast.Closed, match="compacted.*ask"):
            for node in nodes:
                node.parent
    assert link not in list(kept) and all(node != made for node in kept) and kept == kept
    assert str(text) == "two" and "closed" in repr(link)
    # Those that are asked for now are as good as before.
    body.append(new)
    assert body.contents[-1] == one(kept, "body > a") and new.parent == body
    kept.check()


# Guarantee: documents/python-stale
def test_a_document_has_no_memory_to_look_at(kept: Document) -> None:
    heap = kept.heap
    assert heap is not None and "page" in heap
    with pytest.raises(holdfast.DocumentError, match="Document.open"):
        heap["page"]
    with pytest.raises(holdfast.DocumentError, match="Document.open"):
        heap.get("page")
    # Memory of a root that was rolled back keeps documents from growing into it.
    heap.create("other", 8)
    with pytest.raises(RuntimeError):
        with heap.transaction():
            view = heap.create("gone", 4096)
            raise RuntimeError
    with pytest.raises(BufferError, match="release"):
        one(kept, "a").string = "x"
    view.release()
    one(kept, "a").string = "x"


# Guarantee: documents/python
def test_errors_say_what_to_do_and_leave_what_was_there(kept: Document, places: Places, tmp_path: Path) -> None:
    heap = kept.heap
    assert heap is not None
    deep = "<div>" * 3000
    with pytest.raises(holdfast.DocumentTooLarge, match="2048 levels") as raised:
        Document.parse(deep, heap=heap, name="page")
    assert raised.value.limit == "levels of elements" and raised.value.max == 2048
    assert one(kept, "a")["href"] == "/1"
    assert len(Document.parse(deep, max_depth=4000).select("div")) == 3000
    options: list[Any] = [{"max_source_bytes": 10}, {"max_nodes": 10}, {"max_attributes": 1}, {"max_text_bytes": 1}]
    options += [{"max_all_attributes": 1}, {"max_names": 2}]
    for limits in options:
        with pytest.raises(holdfast.DocumentTooLarge, match="raise the limit"):
            Document.parse(PAGE, **limits)
    wide = "<p" + " " * 200_000
    with pytest.raises(holdfast.DocumentTooLarge, match="raise the limit"):
        Document.parse(wide)
    assert Document.parse(wide, max_token_parts=1_000_000).select("body")
    with pytest.raises(FileNotFoundError, match="none.html"):
        Document.parse(tmp_path / "none.html", heap=heap)
    with pytest.raises(holdfast.DocumentNotFound, match="other"):
        Document.open("other", heap=heap)
    with pytest.raises(holdfast.HeapNotFound):
        Document.open(heap="none", **places)
    assert not (Path(places["home"]) / "none").exists()
    with pytest.raises(holdfast.HeapNotFound):
        holdfast.Heap("none", create=False, **places)
    heap.create("table", 8).release()
    others: list[Callable[[], object]] = [
        lambda: Document.open("table", heap=heap), lambda: Document.parse("", heap=heap, name="table")
    ]
    for use in others:
        with pytest.raises(holdfast.DocumentError, match="no document"):
            use()
    three: Any = 3
    wrong: list[Callable[[], object]] = [
        lambda: Document(), lambda: Document.parse(three), lambda: Document.parse("", heap=three, name="x"),
        lambda: Document.parse("", heap=heap), lambda: Document.open("x", heap=three), lambda: kept.append(three),
        lambda: kept.select(three), lambda: kept.find(attrs=three),
    ]
    for use in wrong:
        with pytest.raises(TypeError):
            use()
    with pytest.raises(holdfast.DocumentError, match="another document"):
        kept.append(one(Document.parse("<p>"), "p"))
    with pytest.raises(ValueError, match="255"):
        Document.parse("", heap=heap, name="")


# Guarantee: documents/python
def test_a_damaged_document_is_an_error_and_its_heap_serves_on(places: Places) -> None:
    with parsed(places) as page:
        page.commit()
    image = next(Path(places["pool"]).rglob("pages.image"))
    content = bytearray(image.read_bytes())
    # The header of the document begins with its magic number.
    place = content.index(b"HFSTHTML")
    content[place + 20] ^= 0xFF
    with open(image, "r+b") as file:
        file.write(content)
    with holdfast.Heap("pages", **places) as heap:
        with pytest.raises(holdfast.DocumentDamaged, match="parse the page again"):
            Document.open("page", heap=heap)
        Document.parse(PAGE, heap=heap, name="page").check()


# Guarantee: documents/python-stale
def test_threads_and_forks(places: Places) -> None:
    with holdfast.Heap("pages", limit="64MiB", **places) as heap:
        page = Document.parse(PAGE, heap=heap, name="page")

        def parse(name: str) -> None:
            for _ in range(20):
                Document.parse(PAGE, heap=heap, name=name)

        threads = [threading.Thread(target=parse, args=[name]) for name in ["one", "two"]]
        for thread in threads:
            thread.start()
        for _ in range(200):
            assert len(page.select("a")) == 2
        for thread in threads:
            thread.join()
        assert Document.names(heap) == ["one", "page", "two"]
        child = os.fork()
        if child == 0:
            try:
                page.select("a")
            except holdfast.Forked:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Guarantee: documents/python
def test_a_kill_leaves_each_transaction_whole(places: Places) -> None:
    parsed(places).close()
    code = textwrap.dedent(
        """
        import holdfast
        page = holdfast.Document.open(heap="pages")
        for number in range(1_000_000):
            with page.transaction():
                for link in page.select("a"):
                    link["round"] = str(number)
                    link.string = str(number)
            if number == 20:
                print("changing", flush=True)
        """
    )
    environment = {**os.environ, "HOLDFAST_HOME": str(places["home"]), "HOLDFAST_POOL": str(places["pool"])}
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as killed:
            assert killed.stdout is not None and killed.stdout.readline() == b"changing\n"
            killed.send_signal(signal.SIGKILL)
        with Document.open(heap="pages", **places) as page:
            page.check()
            links = page.select("a")
            assert len({link["round"] for link in links} | {str(link.string) for link in links}) == 1
