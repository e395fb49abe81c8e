"""How the joint loss is asked for."""

from streammach.parts.switches import Switch

SWITCH = Switch(
    option="loss",
    words=("auto", "joint", "independent"),
    help="What repetitions learn: each its buckets, or all the class.",
)
