"""How counts are asked for."""

from streammach.parts.switches import Switch

SWITCH = Switch(option="counts", help="Counts of (feature, class) pairs beside the hashed models.")
