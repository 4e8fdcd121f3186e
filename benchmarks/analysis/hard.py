"""Programs that are hard to analyse: very long, or deeply nested."""

from __future__ import annotations

HUGE = {
    "lines": "x = 1\n" * 100_000,
    "functions": "\n".join(f"def f{n}(a):\n    return f{n - 1}(a) + {n}\n" for n in range(33_000)),
    "calls": "import torch\n" + "torch.nn.Linear(10, 10).cuda()\n" * 100_000,
    "classes": "import torch\n"
    + "class A(torch.nn.Module):\n    def __init__(self):\n        self.x = torch.nn.Linear(3, 3)\n" * 33_000,
    "branches": "import os\n" + "if os.environ['A']:\n    x = 1\nelse:\n    x = 2\n" * 25_000,
    "a line": "x = [" + "1, " * 600_000 + "]\n",
    "comments": "# torch.cuda\n" * 100_000,
    "broken lines": "x = (\n" * 100_000,
    "broken words": "import torch torch\n" * 100_000,
    "a loop met often": "def f():\n    for i in range(200):\n        return\n"
    + f"        x = [{', '.join(f'q{n}' for n in range(200))}]\n" * 500
    + "for letter in 'abcdefghijklmnopqrst' * 25:\n"
    + "    f()\n" * 20,
    "a string": '"""' + "import torch\n" * 100_000 + '"""\n',
}
DEEP = {
    "brackets": "x = " + "[" * 5000 + "]" * 5000,
    "open brackets": "(" * 5000,
    "calls": "x = " + "f(" * 5000 + ")" * 5000,
    "attributes": "x = a" + ".b" * 5000,
    "sums": "x = 1" + " + 1" * 5000,
    "signs": "x = " + "-" * 5000 + "1",
    "nots": "x = " + "not " * 5000 + "1",
    "indents": "\n".join(" " * n + "if x:" for n in range(5000)) + "\n" + " " * 5000 + "y = 1\n",
    "lambdas": "x = " + "lambda: " * 5000 + "1",
    "elifs": "if a:\n    x = 1\n" + "elif b:\n    x = 2\n" * 5000,
    "comparisons": "x = " + "1 if a else " * 5000 + "2",
    "functions": "\n".join(f"def f{n}(): return f{n + 1}()" for n in range(5000)) + "\nf0()\n",
    "recursion": "def f(x):\n    return f(f(x))\nf(1)\n",
    "classes": "class A0: pass\n" + "".join(f"class A{n}(A{n - 1}): pass\n" for n in range(1, 5000)) + "A4999()\n",
    "dicts": "x = " + "{1: " * 5000 + "1" + "}" * 5000,
    "strings": "x = " + "f'{" * 50 + "1" + "}'" * 50,
    "loops": "import torch\n"
    + "".join(" " * n + f"for i{n} in range(200):\n" for n in range(19))
    + " " * 19
    + "x = torch.zeros(3)\n",
    "doubling": "x = [1]\n" + "x = x + x\n" * 60,
    "powers": "x = 9\n" + "x = x ** x\n" * 60,
    "repeats": "x = 'a'\n" + "x = x * 1000\n" * 20,
    "slices": "import torch\nx = torch.zeros(10 ** 9, 10 ** 9)\ny = x.chunk(10 ** 9)\nz = x.split(1)\n",
}
