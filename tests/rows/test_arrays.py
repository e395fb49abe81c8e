"""What tells sparse matrices without loading SciPy."""

import sys
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp

from streammach.rows.arrays import is_sparse

MATRIX = sp.csr_array(np.eye(3))


@pytest.mark.parametrize("module", [None, ModuleType("scipy.sparse"), sp])
def test_a_module_that_another_thread_imports_has_no_matrices_yet(module, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", module)
    assert is_sparse(MATRIX) == (module is sp)
    assert not is_sparse([{"a": 1}])
