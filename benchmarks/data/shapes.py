"""Tables of 22 shapes as people have them: numbers, text, categories, mixtures and tags.

Rows come from three places: what `apt-cache dumpavail` says of Debian's packages (run `apt-get
update` once), WordNet's nouns (`data.noun` of Debian's package wordnet-base), and scikit-learn.
"""

import re
import subprocess
from functools import cached_property

import numpy as np
import pandas as pd

COLUMNS = [f"x{i}" for i in range(10)]
LOADERS = {"iris": "iris", "wine": "wine", "cancer": "breast_cancer", "digits": "digits"}


class Sources:
    """What tables are made of, read once."""

    def __init__(self, nouns):
        self._nouns = nouns  # path of WordNet's file

    @cached_property
    def packages(self):
        """A row for each package of Debian."""
        command = ["apt-cache", "dumpavail"]
        text = subprocess.run(command, capture_output=True, check=False).stdout
        by_name = {}
        for paragraph in text.decode(errors="replace").split("\n\n"):
            fields = fields_of(paragraph)
            if fields.get("Package"):
                by_name.setdefault(fields["Package"], package(fields))
        return pd.DataFrame(list(by_name.values()))

    @cached_property
    def glosses(self):
        """A row for each noun of WordNet: its words, its gloss, its field of life."""
        rows = []
        with open(self._nouns, encoding="utf8") as lines:
            for line in lines:
                if line.startswith("  "):  # the licence
                    continue
                data, _, gloss = line.partition("|")
                parts = data.split()
                words = [
                    word.replace("_", " ") for word in parts[4 : 4 + 2 * int(parts[3], 16) : 2]
                ]
                rows.append((", ".join(words), gloss.strip(), f"lex{parts[1]}"))
        return pd.DataFrame(rows, columns=["title", "text", "label"])


def fields_of(paragraph):
    """The fields of a paragraph by name; lines that begin with a blank go on with one."""
    fields, name = {}, None
    for line in paragraph.split("\n"):
        if line[:1] in {" ", "\t"}:
            if name is not None:
                fields[name] += f" {line.strip()}"
        elif ":" in line:
            name, value = line.split(":", 1)
            fields[name] = value.strip()
    return fields


def package(fields):
    """The columns of a package."""
    home = re.sub(r"https?://(www\.)?", "", fields.get("Homepage", "")).partition("/")[0]
    tags = (tag.strip() for tag in fields.get("Tag", "").split(","))
    return {
        "package": fields["Package"], "title": fields.get("Description", ""),
        "source": fields.get("Source", fields["Package"]).partition(" ")[0],
        "section": fields.get("Section", "").rpartition("/")[2],
        "maintainer": fields.get("Maintainer", "").partition("<")[0].strip(),
        "arch": fields.get("Architecture", ""), "priority": fields.get("Priority", ""),
        "multi": fields.get("Multi-Arch"), "home": home or None,
        "size": float(fields.get("Installed-Size") or "nan"),
        "download": float(fields.get("Size") or "nan"), "tags": [tag for tag in tags if tag],
    }  # fmt: skip


def parted(frame, seed, share=0.2, train=None, test=None):
    """Rows in random order: those to train on, and a share of all to test."""
    frame = frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    n = int(share * len(frame))
    return frame[n:][:train].reset_index(drop=True), frame[:n][:test].reset_index(drop=True)


def loaded(name, sources, seed):
    """One of scikit-learn's small sets."""
    import sklearn.datasets

    found = getattr(sklearn.datasets, f"load_{LOADERS[name]}")(as_frame=True)
    frame = found.data.assign(label=[f"c{kind}" for kind in found.target])
    return parted(frame, seed, 0.3)


def drawn(n, n_classes, seed, **options):
    """Ten numbers whose classes are clusters."""
    from sklearn.datasets import make_classification

    x, y = make_classification(
        n, 10, n_informative=10, n_redundant=0, n_classes=n_classes, random_state=seed, **options
    )
    return pd.DataFrame(x, columns=COLUMNS).assign(label=[f"c{kind}" for kind in y])


def with_holes(sources, seed):
    """Numbers of very different sizes, a seventh of some columns missing."""
    frame, rng = drawn(20_000, 5, seed, n_clusters_per_class=2), np.random.default_rng(seed)
    frame["x0"] = 1000 * np.exp(1.5 * frame["x0"])
    frame["x1"] = 1e5 * frame["x1"] + 2e6
    frame["x2"] *= 1e-3
    for column in ("x3", "x4", "x0"):
        frame.loc[rng.random(len(frame)) < 0.15, column] = np.nan
    return parted(frame, seed)


def sizes(sources, seed):
    """Six numbers of a package, of which the section is to be told."""
    rows = sources.packages
    return parted(pd.DataFrame({
        "size": rows["size"], "download": rows["download"], "words": rows["title"].str.count(" "),
        "tags": rows["tags"].map(len), "title": rows["title"].str.len(),
        "name": rows["package"].str.len(), "label": rows["section"],
    }), seed)  # fmt: skip


def reduced(sources, seed):
    """Glosses as ten dense numbers."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    rows = sources.glosses
    values = TfidfVectorizer(min_df=3, sublinear_tf=True).fit_transform(rows["text"])
    x = TruncatedSVD(10, random_state=0, n_iter=2).fit_transform(values)
    columns = [f"e{i}" for i in range(10)]
    frame = pd.DataFrame(x.astype(np.float32), columns=columns)
    return parted(frame.assign(label=rows["label"]), seed)


def some_columns(columns, label="section", sections=None):
    """A function that makes a table of packages: these columns, and one that is the label."""

    def make(sources, seed):
        rows = sources.packages
        if sections is not None:
            rows = rows[rows["section"].isin(sections)]
        return parted(rows[[*columns, label]].rename(columns={label: "label"}), seed)

    return make


def games(sources, seed):
    """Titles, 2% of them of games."""
    rows = sources.packages
    return parted(rows[["title"]].assign(
        label=np.where(rows["section"] == "games", "games", "other")), seed)  # fmt: skip


def pair(sources, seed):
    """Titles of two languages' packages, without the languages' names."""
    rows = sources.packages[sources.packages["section"].isin(["python", "perl"])]
    title = rows["title"].str.replace("(?i)python|perl|module", "", regex=True)
    return parted(pd.DataFrame({"title": title, "label": rows["section"]}), seed)


def glosses(n):
    """A function that makes a table of few glosses."""
    return lambda sources, seed: parted(
        sources.glosses[["text", "label"]], seed, train=n, test=5000
    )


def names(sources, seed):
    """Words without their glosses."""
    return parted(sources.glosses[["title", "label"]], seed)


def many(sources, seed):
    """Titles of 2,400 source packages."""
    rows = sources.packages
    often = rows["source"].map(rows["source"].value_counts()) >= 4
    return parted(rows.loc[often, ["title", "source"]].rename(columns={"source": "label"}), seed)


def few_mixed(sources, seed):
    """Few rows of five sections: a text, two categories, a number."""
    sections = ["net", "utils", "science", "games", "python"]
    rows = sources.packages[sources.packages["section"].isin(sections)]
    rows = rows.sample(3000, random_state=seed)[["title", "maintainer", "arch", "size", "section"]]
    return parted(rows.rename(columns={"section": "label"}), seed)


def tagged(sources, seed):
    """Packages with lists of tags."""
    rows = sources.packages[sources.packages["tags"].map(len) > 0]
    return parted(rows[["package", "title", "maintainer", "section", "tags"]], seed, test=5000)


CATEGORIES = ["maintainer", "arch", "priority", "multi", "home"]
MIXED = ["title", "maintainer", "arch", "multi", "home", "size", "download"]
# By name: what makes rows to train on and rows to test, of sources and a seed.
SHAPES = {
    **{name: lambda sources, seed, name=name: loaded(name, sources, seed) for name in LOADERS},
    "numbers_2": lambda sources, seed: parted(
        drawn(5000, 2, seed, class_sep=0.7, n_clusters_per_class=4), seed
    ),
    "numbers_10": lambda sources, seed: parted(
        drawn(20_000, 10, seed, n_clusters_per_class=2), seed
    ),
    "numbers_missing": with_holes, "sizes_58": sizes, "svd_10": reduced,
    "section_58": some_columns(["title"]), "games_2": games, "pair_2": pair,
    "three": some_columns(["title"], sections=["net", "utils", "science"]),
    "gloss_300": glosses(300), "gloss_1000": glosses(1000), "gloss_2400": glosses(2400),
    "names_26": names, "source_2400": many, "categories_58": some_columns(CATEGORIES),
    "mixed_58": some_columns(MIXED), "mixed_5": few_mixed, "tags": tagged,
}  # fmt: skip
TEXTS = {"title", "text", "package"}  # columns that are texts where they are no numbers
