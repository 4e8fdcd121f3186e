"""What a program tries and goes round where it fails."""

from __future__ import annotations

import pytest
from tests.analysis.programs import read

from crucible.core.routing.profile import GpuNeed

TREES = "import xgboost as xgb\ndef fit(device):\n    return xgb.train({'device': device}, d)\n"
MOVES = "import torch\ndef main():\n    torch.nn.Linear(1, 2).cuda()\n"
ROUND = {
    "sets the same another way": TREES + "try:\n    b = fit('cuda')\nexcept xgb.core.XGBoostError:\n    b = fit('cpu')",
    "calls the same again": TREES + "try:\n    fit('cuda')\nexcept Exception:\n    fit('cpu')",
    "returns another way": (
        TREES + "def best():\n    try:\n        return fit('cuda')\n    except Exception as error:\n"
        "        print(error)\n        return fit('cpu')\nbest()"
    ),
    "fits what was made before": (
        "import xgboost as xgb\nm = xgb.XGBClassifier(device='cuda')\ntry:\n    m.fit(x, y)\n"
        "except xgb.core.XGBoostError:\n    m = xgb.XGBClassifier(device='cpu')\n    m.fit(x, y)"
    ),
    "names a device by trying it": (
        "import torch\ntry:\n    torch.zeros(1).cuda()\n    device = 'cuda'\nexcept RuntimeError:\n    device = 'cpu'\n"
        "torch.nn.Linear(1, 2).to(device)"
    ),
    "makes a device by trying it": (
        "import torch\ntry:\n    device = torch.device('cuda')\n    torch.zeros(1, device=device)\n"
        "except RuntimeError:\n    device = torch.device('cpu')\ntorch.nn.Linear(1, 2).to(device)"
    ),
}
THROUGH = {
    "a whole program that says how it failed": MOVES + "try:\n    main()\nexcept Exception as error:\n    print(error)",
    "what a missing GPU does not raise": MOVES + "try:\n    main()\nexcept KeyboardInterrupt:\n    main()",
    "once tried, once not": TREES + "try:\n    b = fit('cuda')\nexcept Exception:\n    b = fit('cpu')\nfit('cuda')",
    "a code that says that it failed": MOVES + "try:\n    code = main()\nexcept Exception:\n    code = 1\nexit(code)",
    "a number that says that it failed": MOVES + "try:\n    s = main()\nexcept RuntimeError:\n    s = float('nan')",
    "what is tidied up either way": (
        MOVES + "import wandb\ntry:\n    main()\n    wandb.finish()\nexcept Exception:\n    wandb.finish()"
    ),
    "a code that is returned": (
        MOVES + "def run():\n    try:\n        return main()\n    except Exception:\n        return 1\nrun()"
    ),
    "another error after it": TREES + "try:\n    b = fit('cuda')\nexcept Exception:\n    b = None\n    raise",
}


@pytest.mark.parametrize("code", ROUND.values(), ids=ROUND)
def test_what_fails_without_a_gpu_may_be_gone_round(code: str) -> None:
    assert read(code).gpu.value is GpuNeed.OPTIONAL


@pytest.mark.parametrize("code", THROUGH.values(), ids=THROUGH)
def test_what_is_not_gone_round_ends_the_program(code: str) -> None:
    assert read(code).gpu.value is GpuNeed.REQUIRED
