"""Reads a page as a browser does, strictly."""

from html.parser import HTMLParser


class Reader(HTMLParser):
    """Checks that elements are closed in order; collects tables by figure, ids and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.attributes, self.tables, self.text = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] in ("th", "td"):
            self.tables[-1][-1].append(data)

    def table(self, first):
        """The rows of the table whose header begins with a word."""
        return next(t[1:] for t in self.tables if t[0][:1] == [first])
