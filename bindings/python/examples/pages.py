"""A page that is parsed once: `python pages.py [FILE]`, again and again."""

import sys
from pathlib import Path

import holdfast

PAGE = """<!DOCTYPE html><title>News</title>
<ul id=news><li class="item new"><a href=/1>First</a><li class=item><a href=/2>Second</a></ul>"""


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].endswith(".html") else None
    name = path.name if path else "news"
    try:
        page = holdfast.Document.open(name, heap="pages")
        print("opened where it lies, without parsing")
    except (holdfast.HeapNotFound, holdfast.DocumentNotFound):
        page = holdfast.Document.parse(path or PAGE, heap="pages", name=name)
        print("parsed:", page.size_bytes, "bytes in the heap")

    with page:
        if page.title is not None:
            print("title:", page.title.string)
        for link in page.select("a[href]"):
            print(link["href"], link.get_text(strip=True), "(seen)" if link.get("class") else "")
        print("items:", len(page.find_all("li", class_="item")))
        # All of it counts, or nothing.
        with page.transaction():
            for link in page.find_all("a", href=True):
                link["class"] = "seen"
        try:
            page.select("li >")
        except holdfast.SelectorError as error:
            print("a slip:", error)
        page.commit()


if __name__ == "__main__":
    main()
