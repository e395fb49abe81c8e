"""Words and runs of a text, in plain Python: what the compiled pass over cells must give."""

import unicodedata

IDEOGRAPHS = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x2FA20),
              (0x30000, 0x32400))  # fmt: skip
MAX_NAME = 4095


def normalised(text):
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def words_of(text):
    words, word = [], ""
    for character in normalised(text):
        part = character.isalnum() or unicodedata.category(character).startswith("M")
        alone = character.isalnum() and any(a <= ord(character) < b for a, b in IDEOGRAPHS)
        if word and (not part or alone):
            words.append(word)
            word = ""
        if alone:
            words.append(character)
        elif part:
            word += character
    words += [word] if word else []
    return [shortened(word) for word in words]


def shortened(word):
    while len(word.encode()) > MAX_NAME:
        word = word[:-1]
    return word


def features_of(text, ngrams=2, chars=None):
    """Return words and runs of words, and runs of characters within words."""
    words = words_of(text)
    runs = [
        " ".join(words[i : i + n]) for n in range(1, ngrams + 1) for i in range(len(words) - n + 1)
    ]
    runs = [run for run in runs if len(run.encode()) <= MAX_NAME]
    pieces = []
    for word in words if chars else ():
        whole = f" {word} "
        if len(whole) < chars[0]:
            pieces.append(whole)
        for n in range(chars[0], chars[1] + 1):
            pieces += [whole[i : i + n] for i in range(len(whole) - n + 1)]
    return runs, pieces
