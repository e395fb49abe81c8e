"""How well threads share the work of each stage.

    python -m benchmarks.threads [--json FILE]
    python -m benchmarks.threads --real [--threads 1 2 4 8 16] [--only STAGE ...] [--json FILE]

Without --real pieces that sleep stand for kernels, which shows on two cores what handing out costs.
With it each stage does its real work on made rows like those of a text: 33 values a row, 400,000
features, 80,000 classes. A line is printed as soon as it is known; --quick takes a few rows.
"""

import json

from benchmarks.machine_facts import facts, parser, report
from benchmarks.threads.asleep import asleep


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--real", action="store_true", help="real work on made rows")
    arguments.add_argument("--quick", action="store_true", help="a few rows")
    arguments.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    arguments.add_argument("--only", nargs="+", metavar="STAGE", help="no other stage")
    options = arguments.parse_args()
    if not options.real:
        figures = asleep()
        print(json.dumps(figures, indent=1))
    else:
        from benchmarks.threads.real import real

        figures = real(options) | {"machine": facts()}
    report(figures, options.json)


if __name__ == "__main__":
    main()
