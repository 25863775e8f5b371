"""Training loads no compiler; whoever wants it still gets it."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
import torch
from colonnade.nn import backpropagate, make_optimizer, mlp

parameter = torch.nn.Parameter(torch.ones(2))
optimizer = make_optimizer("Adam", [parameter], 0.1, {})
parameter.grad = torch.ones(2)
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
optimizer.zero_grad()
outputs = mlp((3, 2, 1), seed=1)(torch.ones(4, 3))
backpropagate(outputs, torch.ones(4, 1))
assert not any(name.startswith("torch._dynamo.") for name in sys.modules), "the compiler was loaded"
assert "sympy" not in sys.modules, "symbolic shapes were loaded"
assert float(parameter[0]) < 1

compiled = torch.compile(lambda values: values + 1, backend="eager")
assert compiled(torch.ones(1)).item() == 2
assert "torch._dynamo.eval_frame" in sys.modules
assert sys.modules["torch._dynamo"] is torch._dynamo
parameter.grad = torch.ones(2)
optimizer.step()
"""


def test_training_loads_no_compiler_and_compiling_still_works() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
