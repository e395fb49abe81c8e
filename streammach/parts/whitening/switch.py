"""How whitening is asked for."""

from streammach.parts.switches import Switch

SWITCH = Switch(option="whitening", help="Whiten dense rows while they are trained on.")
