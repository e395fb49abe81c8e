"""Converts sources of rows into a store: the command ``streammach convert``, as a script."""

import sys

from streammach.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["convert", *sys.argv[1:]]))
