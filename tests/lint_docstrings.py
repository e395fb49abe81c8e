"""Checks that documented parameters are those of the function, for every file of the package."""

import subprocess
import sys
from pathlib import Path

files = sorted(str(f) for f in Path("streammach").rglob("*.py"))
sys.exit(subprocess.run([sys.executable, "-m", "numpydoc", "lint", *files], check=False).returncode)
