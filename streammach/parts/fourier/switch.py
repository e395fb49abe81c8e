"""How random Fourier features are asked for."""

from streammach.parts.switches import Switch

SWITCH = Switch(option="fourier", help="Cosines of random projections beside dense rows.")
