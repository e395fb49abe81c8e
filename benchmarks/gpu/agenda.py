"""The stages of the benchmark in the order of what they teach, and what each has to show."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.gpu import checks, rates, work
from benchmarks.gpu.shapes import IMAGENET, ODP
from benchmarks.gpu.whole import whole
from streammach.backends.registry import BACKENDS

POINTS = 0.002  # of accuracy: how far the devices may lie apart
ODP_SECONDS, IMAGENET_SECONDS = 0.35, 60.0  # of an epoch on an H100, aimed at


@dataclass(frozen=True)
class Stage:
    """A question to a card."""

    name: str
    minutes: float  # that it may take, compilation included; a guess
    find: Callable[[Any], dict]  # given the options, returns figures for JSON
    # given figures and options, returns whether they are right and a line that says so
    judge: Callable[[dict, Any], tuple[bool, str]]


def largest(shape, limit, most_models, weights="float32"):
    """The same with the most repetitions that a limit of device memory allows."""
    best = replace(shape, n_repetitions=1)
    for step in (256, 64, 16, 4, 1):
        while best.n_repetitions + step <= most_models:
            more = replace(best, n_repetitions=best.n_repetitions + step)
            config = more.config(weights=weights)
            if sum(BACKENDS["cuda"].footprint(config, None)[1].values()) > limit:
                break
            best = more
    return best


def agenda(options):
    """The stages, the one that teaches most first."""
    sparse, dense = options.sparse, options.dense

    def epoch(shape, **how):
        return lambda o: work.epoch(o, shape, **how)

    def most(weights):
        def find(o):
            shape = largest(sparse, o.limit, o.most_models, weights)
            return work.epoch(o, shape, limit=o.limit, weights=weights)

        return find

    def tf32(o):
        return work.epoch(o, replace(dense, batch_size=4 * dense.batch_size), tf32=True)

    return (
        Stage("facts", 1.0, rates.facts, known),
        Stage("correctness", 4.0, checks.correctness, agrees),
        Stage("repeat", 1.0, checks.repeat, repeats),
        Stage("resident epoch", 1.0, epoch(sparse, resident=True), in_time),
        Stage("epoch", 1.0, epoch(sparse), in_time),
        Stage("kernels", 1.0, work.kernel_times, near_floors),
        Stage("dense epoch", 1.5, epoch(dense), in_time),
        Stage("dense epoch in TF32", 1.0, tf32, in_time),
        Stage("whole", 6.0, whole, as_accurate),
        Stage("top-k", 1.0, work.top_k, decides),
        Stage("bfloat16 rounding", 0.5, checks.rounding, unbiased),
        Stage("bfloat16 repeat", 1.0, lambda o: checks.repeat(o, "bfloat16"), repeats),
        Stage("bfloat16 epoch", 1.0, epoch(sparse, weights="bfloat16"), in_time),
        Stage("epoch in two waves", 1.0, epoch(sparse, waves=2), within_memory),
        Stage("largest model", 1.5, most("float32"), within_memory),
        Stage("bfloat16 largest model", 1.5, most("bfloat16"), within_memory),
    )  # fmt: skip


def known(found, options):
    """The card's rates are found out."""
    return True, (
        f"{found['copy_gb_per_s']:,.0f} GB/s of memory, {found['cache_gb_per_s']:,.0f} of the L2, "
        f"{found['host_to_device_gb_per_s']:,.0f} from the host; "
        f"{found['product_tflops']:,.0f} TFLOP/s of float32 products"
    )


def agrees(found, options):
    """Steps and decisions are the CPU's."""
    n = len(found["failures"])
    return not n, (
        f"{found['shapes'] - n} of {found['shapes']} shapes as on the CPU, largest difference "
        f"{found['largest_relative_error']:.2g}"
    )


def repeats(found, options):
    """The same batches give the same bytes."""
    ways = len(set(found["sha256"]))
    return found["same"], f"twice, in two waves and with rows kept: {ways} kind(s) of bytes"


def unbiased(found, options):
    """Rounding at random has no bias."""
    right = found["largest"] < 1 and abs(found["mean"]) <= 4 / found["n"] ** 0.5
    return right, f"mean error {found['mean']:.2g} of a last place, at most {found['largest']:.2g}"


def within_memory(found, options):
    """No more memory was taken than projected."""
    taken, projected = found["taken_bytes"], found["projected_bytes"]
    shape = found["shape"]
    step, host = (1e6 * found[name] for name in ("seconds_a_step", "host_seconds_a_step"))
    return taken <= projected, (
        f"{shape['n_buckets']} x {shape['n_repetitions']}: an epoch in {found['seconds']:.3g} s, "
        f"a step {step:,.0f} us, the host's {host:,.0f}; "
        f"{taken / 1e9:.2f} of {projected / 1e9:.2f} GB projected"
    )


def in_time(found, options):
    """An epoch takes the time that is aimed at; whether it does is said, and no failure."""
    right, line = within_memory(found, options)
    aims = {ODP.name: ODP_SECONDS, IMAGENET.name: IMAGENET_SECONDS}
    aim = aims.get(found["shape"]["name"])
    if aim is not None:
        verdict = "reached" if found["seconds"] <= aim else "missed"
        line += f"; {aim:g} s on an H100 {verdict}"
    return right, line


def near_floors(found, options):
    """How near the kernels are to their floors, and what the host takes to ask for them."""
    parts, right = [], True
    for name in ("fill and send", "forward", "sorting", "backward", "losses"):
        one = found[name]
        text = f"{name} {1e6 * one['seconds']:.0f} us, the host's {1e6 * one['host_seconds']:.0f}"
        if "share_of_floor" in one:
            text += f" ({one['share_of_floor']:.0%} of the floor)"
            right = right and one["share_of_floor"] <= 1.05  # else the floor is none
        parts.append(text)
    return right, "; ".join(parts)


def decides(found, options):
    """What a decision takes."""
    line = f"{found['microseconds_a_row']['mean top-5']:.2f} us a row for the mean's top-5"
    if "floor_microseconds_a_row" in found:
        line += f", floor {found['floor_microseconds_a_row']:.2f}"
    return True, line


def as_accurate(found, options):
    """Both devices are equally accurate."""
    reached = {
        name: one["top_5_accuracy"] for name, one in found.items() if "top_5_accuracy" in one
    }
    line = ", ".join(
        f"{name} {found[name]['seconds']:.1f} s" for name in found if name != "seconds"
    )
    if not reached:
        return True, line
    figures = ", ".join(f"{name} {one:.4f}" for name, one in reached.items())
    apart = max(abs(one - reached["cpu"]) for one in reached.values())
    return apart <= POINTS, f"top-5 accuracy {figures}; {line}"
