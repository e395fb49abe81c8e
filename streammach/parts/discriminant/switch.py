"""How a closed form is asked for."""

from streammach.parts.switches import Switch

SWITCH = Switch(
    option="closed_form", help="A linear discriminant added to exact weights of dense rows."
)
