import shutil

import pytest
import torch


@pytest.mark.skipif(shutil.which("g++") is None or shutil.which("ninja") is None, reason="no compiler")
def test_soft_plus():
    from handmade.compiled import soft_plus

    x = torch.randn(9, 2, requires_grad=True)
    torch.testing.assert_close(soft_plus(x), torch.nn.functional.softplus(x))
