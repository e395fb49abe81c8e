"""How the joint loss is asked for."""

from streammach.parts.switches import Switch

SWITCH = Switch(
    option="loss",
    words=("auto", "joint", "apart"),
    help="What repetitions learn: buckets apart, or the class together.",
)
